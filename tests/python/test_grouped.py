"""grouped_gemm_nt, route and the grouped products of culet.deep_gemm on the CPU, against FP64."""

import ctypes
import inspect
import unittest

import culet

try:
    import torch
    from culet import deep_gemm
except ImportError as error:
    raise unittest.SkipTest(f"no torch: {error}") from error

COUNTS = (0, 1, 7, 8, 9, 0, 127, 128, 129)
POISON = 12345.0


def normal(*shape, seed=0, dtype=torch.bfloat16):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def ints(values):
    return torch.tensor(values, dtype=torch.int32)


def offsets_of(counts):
    return ints([sum(counts[:g]) for g in range(len(counts) + 1)])


def quantised(x, w):
    """Pairs of a (M, K) and b (G, N, K), and what they mean."""
    a = deep_gemm.per_token_cast_to_fp8(x, False)
    each = [deep_gemm.per_block_cast_to_fp8(one, False) for one in w]
    b = torch.stack([values for values, _ in each]), torch.stack([scales for _, scales in each])
    rows = a[1].double().repeat_interleave(128, 1)[:, :x.shape[1]]
    blocks = b[1].double().repeat_interleave(128, 1)[:, :w.shape[1]].repeat_interleave(128, 2)[..., :x.shape[1]]
    return a, b, a[0].double() * rows, b[0].double() * blocks


def ranges_of(starts, counts):
    return [(int(start), int(start) + int(count)) for start, count in zip(starts, counts)]


def wanted_of(x, w, ranges, index=None, bias=None, gated=False):
    """What rows of groups must be, in FP64; NaN elsewhere."""
    rows = x if index is None else torch.stack([
        x[i] if 0 <= i < len(x) else torch.zeros_like(x[0]) for i in index.tolist()])
    width = w.shape[1] // 2 if gated else w.shape[1]
    out = torch.full((len(rows), width), float("nan"), dtype=torch.float64)
    for g, (begin, end) in enumerate(ranges):
        found = rows[begin:end].double() @ w[g].double().T + (0 if bias is None else bias[g].double())
        if gated:
            gate, up = found.split(width, 1)
            found = gate / (1 + (-gate).exp()) * up
        out[begin:end] = found
    return out


class Checks(unittest.TestCase):
    def check(self, found, wanted, bound=1e-2):
        """Rows of no group hold the poison still."""
        there = ~wanted[:, 0].isnan()
        self.assertTrue((found[~there].double() == torch.tensor(POISON, dtype=found.dtype).double()).all())
        self.assertFalse(found[there].isnan().any())
        torch.testing.assert_close(found[there].double(), wanted[there], rtol=bound, atol=bound * 10)


class Grouped(Checks):
    def test_counts(self):
        n, k, groups = 72, 136, len(COUNTS)
        x, w = normal(sum(COUNTS), k), normal(groups, n, k, seed=1)
        ranges = ranges_of(offsets_of(COUNTS), COUNTS)
        out = culet.grouped_gemm_nt(x, w, offsets=offsets_of(COUNTS))
        self.assertEqual((out.dtype, tuple(out.shape)), (torch.bfloat16, (sum(COUNTS), n)))
        self.check(out, wanted_of(x, w, ranges))
        a, b, of_a, of_b = quantised(x, w)
        out = culet.grouped_gemm_nt(a, b, offsets=offsets_of(COUNTS))
        self.check(out, wanted_of(of_a, of_b, ranges))
        out = culet.grouped_gemm_nt(x.float(), w.float(), offsets=offsets_of(COUNTS), out_dtype=torch.float32)
        self.check(out, wanted_of(x, w, ranges), 1e-5)

    def test_gaps_order_and_strides(self):
        starts, counts = ints([20, 3, 0, 12]), ints([5, 7, 0, 1])
        x, w = normal(30, 40)[:, :32], normal(4, 16, 32, seed=1)
        out = torch.full((28, 20), POISON, dtype=torch.bfloat16)[:, :16]
        self.assertIs(culet.grouped_gemm_nt(x, w, out, starts=starts, counts=counts, expected=(4, 2, 8)), out)
        wanted = wanted_of(x[:28], w, ranges_of(starts, counts))
        self.check(out, wanted)
        out.fill_(POISON)
        culet.grouped_gemm_nt(x, w, out, starts=starts, counts=ints([0] * 4))
        self.check(out, torch.full_like(wanted, float("nan")))

    def test_scales_in_either_order(self):
        for m, k in ((9, 300), (1, 300), (9, 100), (1, 100)):
            a, b, of_a, of_b = quantised(normal(m, k), normal(1, 48, k, seed=1))
            wanted = wanted_of(of_a, of_b, [(0, m)])
            for scales in (a[1], deep_gemm.get_mn_major_tma_aligned_tensor(a[1]), a[1].t().contiguous().t()):
                self.check(culet.grouped_gemm_nt((a[0], scales), b, offsets=ints([0, m])), wanted)

    def test_index_bias_and_gate(self):
        x, w, bias = normal(5, 64), normal(3, 256, 64, seed=1) / 4, normal(3, 256, seed=2)
        index, offsets = ints([4, 0, 0, -1, 5, 3, 2**31 - 1, 1]), ints([0, 3, 3, 8])
        ranges = [(0, 3), (3, 3), (3, 8)]
        for epilogue in (None, "gated_silu_halves"):
            out = culet.grouped_gemm_nt(x, w, offsets=offsets, index=index, bias=bias, epilogue=epilogue)
            self.check(out, wanted_of(x, w, ranges, index, bias, epilogue is not None))
            a, b, of_a, of_b = quantised(x, w)
            out = culet.grouped_gemm_nt(a, b, offsets=offsets, index=index, epilogue=epilogue)
            self.check(out, wanted_of(of_a, of_b, ranges, index, None, epilogue is not None))
        self.assertEqual(len(culet.grouped_gemm_nt(x, w, offsets=ints([0, 1, 2, 3]), index=index, rows=3)), 3)

    def test_calls_that_were_checked_before(self):
        x, w = normal(9, 64), normal(2, 16, 64, seed=1)
        offsets, out = ints([0, 4, 9]), torch.empty(9, 16, dtype=torch.bfloat16)
        for seed in (2, 3, 4):  # other memory, the same shapes
            x, w, offsets, out = normal(9, 64, seed=seed), w.clone(), offsets.clone(), torch.full_like(out, POISON)
            self.assertIs(culet.grouped_gemm_nt(x, w, out, offsets=offsets), out)
            self.check(out, wanted_of(x, w, [(0, 4), (4, 9)]))
        offsets = ints([0, 9, 9])
        culet.grouped_gemm_nt(x, w, out, offsets=offsets)
        self.check(out, wanted_of(x, w, [(0, 9), (9, 9)]))
        for words, call in (
                ("offsets holds int64", lambda: culet.grouped_gemm_nt(x, w, out, offsets=offsets.long())),
                ("offsets has the shape", lambda: culet.grouped_gemm_nt(x, w, out, offsets=offsets[:2])),
                ("a has the shape", lambda: culet.grouped_gemm_nt(x[:, :32], w, out, offsets=offsets)),
                ("strides", lambda: culet.grouped_gemm_nt(x.t().contiguous().t(), w, out, offsets=offsets)),
                ("negates", lambda: culet.grouped_gemm_nt(torch._neg_view(x), w, out, offsets=offsets)),
                ("epilogue is", lambda: culet.grouped_gemm_nt(x, w, out, offsets=offsets, epilogue="silu"))):
            with self.assertRaisesRegex(culet.InvalidArgument, words):
                call()

    def test_garbage_beside_groups(self):
        x, w = normal(9, 160), normal(2, 24, 160, seed=1)
        a, b, of_a, of_b = quantised(x, w)
        ranges = [(1, 3), (6, 8)]
        wanted = wanted_of(of_a, of_b, ranges)
        for row in (0, 3, 5, 8):
            a[0][row], a[1][row] = float("nan"), float("nan")
        out = torch.full((9, 24), POISON, dtype=torch.bfloat16)
        culet.grouped_gemm_nt(a, b, out, starts=ints([1, 6]), counts=ints([2, 2]))
        self.check(out, wanted)

    def test_numpy(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("no numpy")
        x, w = normal(6, 32, dtype=torch.float32), normal(2, 8, 32, seed=1, dtype=torch.float32)
        out = culet.grouped_gemm_nt(x.numpy(), w.numpy(), offsets=numpy.array([0, 2, 6], dtype=numpy.int32))
        self.assertIsInstance(out, numpy.ndarray)
        self.check(torch.from_numpy(out), wanted_of(x, w, [(0, 2), (2, 6)]), 1e-5)
        offsets = (ctypes.c_int32 * 3)(0, 2, 6)
        again = culet.grouped_gemm_nt(x.numpy(), w.numpy(), offsets=offsets)
        self.assertTrue((out == again).all())

    def test_empty(self):
        self.assertEqual(tuple(culet.grouped_gemm_nt(normal(0, 32), normal(2, 8, 32), offsets=ints([0, 0, 0])).shape),
                         (0, 8))

    def test_refusals(self):
        x, w, offsets = normal(6, 32), normal(2, 8, 32), ints([0, 2, 6])

        def refused(words, a=x, b=w, out=None, **options):
            with self.assertRaisesRegex((culet.InvalidArgument, culet.Error), words):
                culet.grouped_gemm_nt(a, b, out, **{"offsets": offsets, **options})

        refused("give offsets, or starts", offsets=None)
        refused("give offsets, or starts", starts=offsets)
        refused("give offsets, or starts", offsets=None, starts=ints([0, 2]))
        refused("offsets holds int64", offsets=offsets.long())
        refused(r"offsets has the shape \(2,\)", offsets=offsets[:2])
        refused("index of shape", index=torch.zeros(12, dtype=torch.int32)[::2])
        refused("index has 3 elements", out=normal(6, 8), index=offsets)
        refused("out has 7 rows", out=normal(7, 8))
        refused("out has the shape", out=normal(6, 9))
        refused("out is given with", out=normal(6, 8), out_dtype=torch.float32)
        refused("rows is 7", rows=7)
        refused("rows is inf", rows=float("inf"))
        refused("a has the shape", a=normal(6, 33))
        refused("b has the shape", b=normal(8, 32))
        refused("b holds float16", b=w.half())
        refused("b of shape", b=normal(2, 32, 8).transpose(1, 2))
        refused("b holds bfloat16", a=x.to(torch.float8_e4m3fn))
        refused("b holds bfloat16", a=(x.to(torch.float8_e4m3fn), torch.ones(6, 1)))
        refused("a holds float8_e4m3fn; give a pair", a=x.to(torch.float8_e4m3fn), b=w.to(torch.float8_e4m3fn))
        refused("epilogue is 'gelu'", epilogue="gelu")
        refused("n is 4", epilogue="gated_silu_halves")
        refused("bias has the shape", bias=normal(8))
        refused("expected is 3", expected=3)
        refused("expected's active is 0", expected=(3, 0, 2))
        same = normal(6, 8)
        refused("overlaps", a=same, b=normal(2, 8, 8), out=same)
        refused("pdl is 7", pdl=7)


class Route(unittest.TestCase):
    def check(self, logits, top_k, **options):
        found = culet.route(logits, top_k, **options)
        tokens, experts = logits.shape
        flat = found.ids.flatten().tolist()
        self.assertEqual(sorted(found.order.tolist()), list(range(tokens * top_k)))
        for e in range(experts):
            begin, end = found.offsets[e:e + 2].tolist()
            rows = found.order[begin:end].tolist()
            self.assertEqual(rows, [r for r in range(tokens * top_k) if flat[r] == e])  # in the order of tokens
        self.assertEqual(found.places[found.order.long()].tolist(), list(range(tokens * top_k)))
        return found

    def test_ranks(self):
        tokens, experts, top_k, inner = 11, 10, 3, 16
        logits, x = normal(tokens, experts, dtype=torch.float32), normal(tokens, 32, dtype=torch.float32)
        w = normal(experts, inner, 32, seed=1, dtype=torch.float32)
        whole = culet.route(logits, top_k, renormalize=True)
        self.assertEqual(int(whole.dropped), 0)

        def block(found, here):
            y = culet.grouped_gemm_nt(x, here, offsets=found.offsets, index=found.order // top_k)
            y = y[found.places.clamp(min=0).long()].where(found.places[:, None] >= 0, 0)
            return (y.view(tokens, top_k, -1) * found.weights[..., None]).sum(1)

        wanted, total = block(whole, w), 0
        for ranges in (((0, 5), (5, 5)), ((0, 3), (3, 1), (4, 6))):
            total, found = 0, []
            for first, count in ranges:
                one = culet.route(logits, top_k, renormalize=True, local=(first, count))
                inside = (one.ids >= first) & (one.ids < first + count)
                self.assertEqual(int(one.dropped), int((~inside).sum()))
                self.assertEqual(int(one.offsets[-1]), int(inside.sum()))
                self.assertTrue((one.places[~inside.flatten()] == -1).all())
                self.assertTrue((one.weights[~inside] == 0).all())
                self.assertTrue(torch.equal(one.ids, whole.ids))
                total = total + block(one, w[first:first + count])
                found.append(int(one.dropped))
            self.assertEqual(sum(tokens * top_k - dropped for dropped in found), tokens * top_k)
            torch.testing.assert_close(total, wanted)
        nobody = culet.route(torch.tensor([[9.0, 8, 0, 0]]), 2, local=(2, 2))
        self.assertEqual((nobody.offsets.tolist(), int(nobody.dropped)), ([0, 0, 0], 2))
        for wrong in ((0, 0), (10, 1), (4, 7), 3, (0.0, 2)):
            with self.assertRaisesRegex(culet.InvalidArgument, "local"):
                culet.route(logits, top_k, local=wrong)

    def test_softmax(self):
        logits = normal(13, 8, dtype=torch.float32)
        best = logits.double().softmax(1).topk(3, 1)
        found = self.check(logits, 3)
        self.assertEqual(found.ids.tolist(), best.indices.tolist())
        torch.testing.assert_close(found.weights.double(), best.values, rtol=1e-5, atol=1e-6)
        found = self.check(logits, 3, renormalize=True, scale=2.5)
        torch.testing.assert_close(found.weights.sum(1), torch.full((13,), 2.5))
        found = self.check(logits, 3, scoring="softmax_of_chosen")
        torch.testing.assert_close(found.weights.double(), logits.double().topk(3, 1).values.softmax(1),
                                   rtol=1e-5, atol=1e-6)

    def test_groups_and_bias(self):
        """DeepSeek-V3's: a bias to choose by, groups by their two best."""
        logits, bias = normal(40, 16, dtype=torch.float32), normal(16, seed=3, dtype=torch.float32)
        found = self.check(logits, 4, scoring="sigmoid", bias=bias, groups=4, kept_groups=2, renormalize=True)
        for token in range(40):
            scores = logits[token].double().sigmoid()
            by = scores + bias.double()
            order = sorted(range(4), key=lambda g: -sum(sorted(by[4 * g:4 * g + 4].tolist())[-2:]))
            chosen = sorted((e for g in order[:2] for e in range(4 * g, 4 * g + 4)), key=lambda e: -float(by[e]))[:4]
            self.assertEqual(found.ids[token].tolist(), chosen)
            torch.testing.assert_close(found.weights[token].double(), scores[chosen] / scores[chosen].sum(),
                                       rtol=1e-5, atol=1e-6)

    def test_ties_and_no_tokens(self):
        found = self.check(torch.zeros(3, 6), 2)
        self.assertEqual(found.ids.tolist(), [[0, 1]] * 3)
        self.assertEqual(self.check(torch.zeros(0, 6), 2).offsets.tolist(), [0] * 7)
        ids = culet.route(torch.full((2, 5), float("nan")), 3).ids
        self.assertTrue(((ids >= 0) & (ids < 5)).all())

    def test_an_expert_block(self):
        """From logits to the sum, against one token after the other."""
        tokens, hidden, inner, experts, k = 7, 64, 32, 6, 2
        x, logits = normal(tokens, hidden), normal(tokens, experts, seed=1, dtype=torch.float32)
        up, down = normal(experts, 2 * inner, hidden, seed=2) / 8, normal(experts, hidden, inner, seed=3) / 8
        found = culet.route(logits, k, renormalize=True)
        h = culet.grouped_gemm_nt(x, up, offsets=found.offsets, index=found.order // k, epilogue="gated_silu_halves")
        y = culet.grouped_gemm_nt(h, down, offsets=found.offsets)
        out = (y[found.places.long()].view(tokens, k, -1) * found.weights[..., None]).sum(1)
        for t in range(tokens):
            wanted = torch.zeros(hidden, dtype=torch.float64)
            for e, weight in zip(found.ids[t].tolist(), found.weights[t].tolist()):
                gate, value = (up[e].double() @ x[t].double()).split(inner)
                wanted += weight * (down[e].double() @ (gate / (1 + (-gate).exp()) * value))
            torch.testing.assert_close(out[t].double(), wanted, rtol=2e-2, atol=2e-2)

    def test_numpy_and_refusals(self):
        logits = normal(4, 6, dtype=torch.float32)
        for one, other in zip(culet.route(logits.numpy(), 2), culet.route(logits, 2)):
            self.assertTrue((one == other.numpy()).all())
        for words, args, options in (
                ("top_k is 7", (logits, 7), {}), ("top_k is True", (logits, True), {}),
                ("top_k is 4", (logits, 4), {"groups": 2}), ("groups is 4", (logits, 2), {"groups": 4}),
                ("kept_groups is 3", (logits, 2), {"groups": 2, "kept_groups": 3}),
                ("scoring is 'max'", (logits, 2), {"scoring": "max"}),
                ("group_score is 1", (logits, 2), {"group_score": 1}),
                (r"bias has the shape \(5,\)", (logits, 2), {"bias": torch.zeros(5)}),
                (r"logits has the shape \(6,\)", (logits[0], 2), {}), ("logits is a list", ([1], 2), {}),
                ("scale is 'x'", (logits, 2), {"scale": "x"})):
            with self.assertRaisesRegex(culet.InvalidArgument, words):
                culet.route(*args, **options)


class DeepGemm(Checks):
    def layout(self, counts, alignment=128):
        """Rows, and the group of each: -1 for padding."""
        indices = []
        for g, count in enumerate(counts):
            indices += [g] * count + [-1] * (-count % alignment)
        return ints(indices)

    def poisoned(self, *shape):
        return torch.full(shape, POISON, dtype=torch.bfloat16)

    def test_contiguous(self):
        counts, n, k = (0, 1, 129, 0, 128, 7), 40, 264
        for alignment in (128, 16, 1):
            indices = self.layout(counts, alignment)
            x, w = normal(len(indices), k), normal(len(counts), n, k, seed=1)
            starts = [int((indices == g).nonzero()[0]) if count else 0 for g, count in enumerate(counts)]
            ranges = ranges_of(starts, counts)
            d = self.poisoned(len(indices), n)
            self.assertIsNone(deep_gemm.m_grouped_bf16_gemm_nt_contiguous(x, w, d, indices))
            self.check(d, wanted_of(x, w, ranges))
            a, b, of_a, of_b = quantised(x, w)
            wanted = wanted_of(of_a, of_b, ranges)
            for scales in (a[1], deep_gemm.get_mn_major_tma_aligned_tensor(a[1])):
                d.fill_(POISON)
                deep_gemm.m_grouped_fp8_gemm_nt_contiguous((a[0], scales), b, d, m_indices=indices)
                self.check(d, wanted)
            turned = tuple(part.transpose(1, 2) for part in b)
            deep_gemm.m_grouped_fp8_gemm_nn_contiguous(a, turned, d.fill_(POISON), indices, recipe=(1, 128, 128))
            self.check(d, wanted)
            deep_gemm.m_grouped_gemm_fp8_fp8_bf16_nt_contiguous(a, b, d.fill_(POISON), indices)
            self.check(d, wanted)

    def test_indices_that_are_none(self):
        x, w, d = normal(6, 32), normal(2, 8, 32, seed=1), self.poisoned(6, 8)
        deep_gemm.m_grouped_bf16_gemm_nt_contiguous(x, w, d, ints([2, 1, 1, -2**31, -1, 2**31 - 1]))
        self.check(d, wanted_of(x, w, [(0, 0), (1, 3)]))
        deep_gemm.m_grouped_bf16_gemm_nt_contiguous(x, w, d.fill_(POISON), ints([-1] * 6))
        self.check(d, wanted_of(x, w, []))

    def test_ends(self):
        """DeepGEMM's layout of prefix sums, by any alignment."""
        self.addCleanup(deep_gemm.set_mk_alignment_for_contiguous_layout, 128)
        for alignment in (128, 8):
            deep_gemm.set_mk_alignment_for_contiguous_layout(alignment)
            self.assertEqual(deep_gemm.get_mk_alignment_for_contiguous_layout(), alignment)
            at, starts, counts, ends = 0, [], (3, 0, 130, 1), []
            for count in counts:
                starts.append(at)
                ends.append(at + count)
                at = -(-(at + count) // alignment) * alignment
            x, w, d = normal(at, 32), normal(4, 8, 32, seed=1), self.poisoned(at, 8)
            deep_gemm.m_grouped_bf16_gemm_nt_contiguous(x, w, d, ints(ends), use_psum_layout=True,
                                                        expected_m_for_psum_layout=33)
            self.check(d, wanted_of(x, w, ranges_of(starts, counts)))

    def test_masked(self):
        groups, most, n, k = 4, 130, 24, 264
        counts = ints([130, 0, 5, 500])
        x, w = normal(groups * most, k), normal(groups, n, k, seed=1)
        ranges = [(g * most, g * most + min(int(count), most)) for g, count in enumerate(counts)]
        d = self.poisoned(groups, most, n)
        deep_gemm.m_grouped_bf16_gemm_nt_masked(x.view(groups, most, k), w, d, counts, 40)
        self.check(d.flatten(0, 1), wanted_of(x, w, ranges))
        a, b, of_a, of_b = quantised(x, w)
        values, plain = a[0].view(groups, most, k), a[1].view(groups, most, -1)
        for scales in (plain, deep_gemm.get_mn_major_tma_aligned_tensor(plain),
                       deep_gemm.transform_sf_into_required_layout(plain, most, k, (1, 128, 128), groups, True)):
            for name in ("m_grouped_fp8_gemm_nt_masked", "fp8_m_grouped_gemm_nt_masked",
                         "m_grouped_gemm_fp8_fp8_bf16_nt_masked"):
                getattr(deep_gemm, name)((values, scales), b, d.fill_(POISON), counts, 40)
                self.check(d.flatten(0, 1), wanted_of(of_a, of_b, ranges))

    def test_names_of_arguments(self):
        for name, wanted in (
                ("m_grouped_fp8_gemm_nt_contiguous",
                 "a b d grouped_layout recipe recipe_a recipe_b compiled_dims disable_ue8m0_cast use_psum_layout "
                 "ensure_zero_padding expected_m_for_psum_layout m_indices"),
                ("m_grouped_fp8_gemm_nt_masked",
                 "a b d masked_m expected_m recipe recipe_a recipe_b compiled_dims disable_ue8m0_cast"),
                ("m_grouped_bf16_gemm_nt_contiguous",
                 "a b d grouped_layout compiled_dims use_psum_layout ensure_zero_padding expected_m_for_psum_layout "
                 "m_indices"),
                ("m_grouped_bf16_gemm_nt_masked", "a b d masked_m expected_m compiled_dims")):
            self.assertEqual(list(inspect.signature(getattr(deep_gemm, name)).parameters), wanted.split(), name)

    def test_refused(self):
        x, w, d, indices = normal(6, 32), normal(2, 8, 32), self.poisoned(6, 8), ints([0] * 6)
        contiguous, masked = deep_gemm.m_grouped_bf16_gemm_nt_contiguous, deep_gemm.m_grouped_bf16_gemm_nt_masked
        slab, e4m3 = (2, 3, 32), x.to(torch.float8_e4m3fn)
        for kind, words, call in (
                (culet.InvalidArgument, "give grouped_layout", lambda: contiguous(x, w, d)),
                (culet.InvalidArgument, "int32 of the shape", lambda: contiguous(x, w, d, indices.long())),
                (culet.InvalidArgument, "int32 of the shape", lambda: contiguous(x, w, d, indices[1:])),
                (culet.InvalidArgument, "int32 of the shape",
                 lambda: contiguous(x, w, d, indices, use_psum_layout=True)),
                (culet.InvalidArgument, "b has the shape", lambda: contiguous(x, w[0], d, indices)),
                (culet.InvalidArgument, "masked_m is",
                 lambda: masked(x.view(slab), w, d.view(2, 3, 8), indices, 3)),
                (culet.InvalidArgument, "expected_m is 0",
                 lambda: masked(x.view(slab), w, d.view(2, 3, 8), indices[:2], 0)),
                (culet.InvalidArgument, "d has the shape",
                 lambda: masked(x.view(slab), w, self.poisoned(2, 4, 8), indices[:2], 3)),
                (culet.InvalidArgument, "rows of all groups",
                 lambda: masked(normal(2, 4, 32)[:, :3], w, d.view(2, 3, 8), indices[:2], 3)),
                (NotImplementedError, r"recipe \(1, 1, 128\)",
                 lambda: deep_gemm.m_grouped_fp8_gemm_nt_contiguous((e4m3, x), (w, w), d, indices, (1, 1, 128))),
                (NotImplementedError, "packed UE8M0", lambda: deep_gemm.m_grouped_fp8_gemm_nt_contiguous(
                    (e4m3, indices), (w, w), d, indices)),
                (culet.InvalidArgument, "new_value is 0",
                 lambda: deep_gemm.set_mk_alignment_for_contiguous_layout(0))):
            with self.assertRaisesRegex(kind, words):
                call()


if __name__ == "__main__":
    unittest.main()
