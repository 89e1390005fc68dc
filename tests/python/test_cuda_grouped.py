"""grouped_gemm_nt, route and the grouped products of culet.deep_gemm on a Hopper GPU, against FP64: counts of every
kind, gaps, an index, garbage beside groups, graphs whose routing changes, what is refused."""

import unittest

import culet
from cuda_support import needs_gpu, whole

try:
    import torch
except ImportError as error:
    raise unittest.SkipTest(f"no torch: {error}") from error

COUNTS = (0, 1, 7, 8, 9, 0, 127, 128, 129, 300)
POISON = 12345.0


def ints(values):
    return torch.tensor(values, dtype=torch.int32, device="cuda")


def offsets_of(counts):
    return ints([sum(counts[:g]) for g in range(len(counts) + 1)])


def quantised(x, w):
    """Whole numbers as pairs of a (M, K) and b (G, N, K) with powers of two as scales, and what they mean."""
    (m, k), (groups, n, _) = x.shape, w.shape
    u = 2.0 ** whole(m, -(-k // 128), seed=5).float()
    v = 2.0 ** whole(groups, -(-n // 128), -(-k // 128), seed=6).float()
    of_a = x.double() * u.double().repeat_interleave(128, 1)[:, :k]
    of_b = w.double() * v.double().repeat_interleave(128, 1)[:, :n].repeat_interleave(128, 2)[..., :k]
    return (x.to(torch.float8_e4m3fn), u), (w.to(torch.float8_e4m3fn), v), of_a, of_b


def wanted_of(x, w, ranges, index=None):
    """FP64 of whole numbers; the poison in rows of no group."""
    if index is not None:
        inside = (index >= 0) & (index < len(x))
        x = x[index.long().clamp(0, max(len(x) - 1, 0))] * inside[:, None]
    out = torch.full((len(x), w.shape[1]), POISON, dtype=torch.float64, device="cuda")
    for g, (begin, end) in enumerate(ranges):
        out[begin:end] = x[begin:end].double() @ w[g].double().t()
    return out


def gated(x, w, ranges, index=None):
    gate, up = wanted_of(x, w, ranges, index).split(w.shape[1] // 2, 1)
    there = gate[:, :1] != POISON
    return torch.where(there, gate / (1 + (-gate).exp()) * up, gate)


def poisoned(*shape, dtype=torch.bfloat16):
    return torch.full(shape, POISON, device="cuda", dtype=dtype)


@needs_gpu
class Grouped(unittest.TestCase):
    def same(self, found, wanted):
        self.assertTrue(torch.equal(found, wanted.to(found.dtype)),
                        lambda: f"{int((found != wanted.to(found.dtype)).sum())} elements differ")

    def near(self, found, wanted):
        torch.testing.assert_close(found.double(), wanted, rtol=1e-2, atol=1e-2)

    def cases(self):
        """Starts and counts, and how many rows there are."""
        offsets = [sum(COUNTS[:g]) for g in range(len(COUNTS))]
        yield offsets, COUNTS, sum(COUNTS)
        yield [start + 3 * g for g, start in enumerate(offsets)], COUNTS, sum(COUNTS) + 40
        yield [0] * 10, [0] * 9 + [500], 700
        yield [0] * 10, [0] * 10, 5
        yield list(range(1, 20, 2)), [1] * 10, 21

    def test_counts(self):
        for starts, counts, rows in self.cases():
            for n, k in ((256, 512), (136, 272), (1024, 2048)):
                x, w = whole(rows, k), whole(len(counts), n, k, seed=1)
                ranges = [(s, s + c) for s, c in zip(starts, counts)]
                options = {"starts": ints(starts), "counts": ints(counts)}
                with self.subTest(counts=counts, n=n, k=k):
                    for expected in (None, (4, 2, 10), (rows, 1, 10)):
                        out = poisoned(rows, n)
                        culet.grouped_gemm_nt(x, w, out, expected=expected, **options)
                        self.same(out, wanted_of(x, w, ranges))
                    a, b, of_a, of_b = quantised(x, w)
                    wanted = wanted_of(of_a, of_b, ranges)
                    for scales in (a[1], a[1].t().contiguous().t()):
                        for dtype in (torch.bfloat16, torch.float32):
                            out = poisoned(rows, n, dtype=dtype)
                            culet.grouped_gemm_nt((a[0], scales), b, out, **options)
                            self.near(out / 64, wanted / 64)

    def test_offsets_index_and_gate(self):
        rows, n, k, tokens = sum(COUNTS), 256, 512, 60
        x, w = whole(tokens, k), whole(len(COUNTS), 2 * n, k, seed=1) / 16
        index = (torch.arange(rows, device="cuda") * 7 % tokens).int()
        index[3], index[20], index[21], index[40] = -1, tokens, 2**31 - 1, -2**31
        offsets = offsets_of(COUNTS)
        ranges = [(sum(COUNTS[:g]), sum(COUNTS[:g + 1])) for g in range(len(COUNTS))]
        a, b, of_a, of_b = quantised(x, w * 16)
        for expected in (None, (2, 1, 10)):
            out = culet.grouped_gemm_nt(x, w, offsets=offsets, index=index, expected=expected)
            self.same(out, wanted_of(x, w, ranges, index))
            out = culet.grouped_gemm_nt(x, w, offsets=offsets, index=index, expected=expected,
                                        epilogue="gated_silu_halves")
            self.near(out, gated(x, w, ranges, index))
            out = culet.grouped_gemm_nt(a, b, offsets=offsets, index=index, expected=expected)
            self.near(out / 64, wanted_of(of_a, of_b, ranges, index) / 64)
            out = culet.grouped_gemm_nt(a, (b[0], b[1] / 1024), offsets=offsets, index=index, expected=expected,
                                        epilogue="gated_silu_halves")
            self.near(out, gated(of_a, of_b / 1024, ranges, index))

    def test_garbage_beside_groups(self):
        x, w = whole(64, 512), whole(4, 256, 512, seed=1)
        a, b, of_a, of_b = quantised(x, w)
        ranges = [(1, 3), (9, 17), (20, 20), (30, 63)]
        wanted = wanted_of(of_a, of_b, ranges)
        outside = torch.ones(64, dtype=torch.bool, device="cuda")
        for begin, end in ranges:
            outside[begin:end] = False
        a[0].view(torch.uint8)[outside], a[1][outside] = 0x7f, float("nan")
        out = poisoned(64, 256)
        starts, ends = (ints(values) for values in zip(*ranges))
        culet.grouped_gemm_nt(a, b, out, starts=starts, counts=ends - starts)
        self.near(out / 64, wanted / 64)

    def test_one_graph_for_every_routing(self):
        """The routing is made anew within the graph."""
        tokens, hidden, inner, experts, k = 24, 512, 256, 16, 4
        x, logits = whole(tokens, hidden) / 4, torch.randn(tokens, experts, device="cuda")
        up = (torch.randn(experts, 2 * inner, hidden, device="cuda") / 16).to(torch.bfloat16)
        down = (torch.randn(experts, hidden, inner, device="cuda") / 16).to(torch.bfloat16)

        def block():
            found = culet.route(logits, k, renormalize=True)
            h = culet.grouped_gemm_nt(x, up, offsets=found.offsets, index=found.order // k,
                                      epilogue="gated_silu_halves", expected=(tokens, k, experts))
            y = culet.grouped_gemm_nt(h, down, offsets=found.offsets, expected=(tokens, k, experts))
            return found, (y[found.places.long()].view(tokens, k, -1) * found.weights[..., None]).sum(1)

        block()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found, out = block()
        for seed in range(3):
            logits.copy_(torch.randn(tokens, experts, generator=torch.Generator().manual_seed(seed)))
            logits[:, 3] += 100 * (seed == 2)  # one expert gets all
            graph.replay()
            torch.cuda.synchronize()
            wanted = torch.zeros(tokens, hidden, dtype=torch.float64, device="cuda")
            for t in range(tokens):
                for e, weight in zip(found.ids[t].tolist(), found.weights[t].double()):
                    gate, value = (up[e].double() @ x[t].double()).split(inner)
                    wanted[t] += weight * (down[e].double() @ (gate / (1 + (-gate).exp()) * value))
            torch.testing.assert_close(out.double(), wanted, rtol=3e-2, atol=3e-2)

    def test_f16_and_bias(self):
        rows, ranges = sum(COUNTS), [(sum(COUNTS[:g]), sum(COUNTS[:g + 1])) for g in range(len(COUNTS))]
        offsets = offsets_of(COUNTS)
        for n, k in ((136, 272), (256, 512)):
            x, w, bias = whole(rows, k), whole(len(COUNTS), n, k, seed=1), whole(len(COUNTS), n, seed=2)
            wanted = wanted_of(x, w, ranges)
            for g, (begin, end) in enumerate(ranges):
                wanted[begin:end] += bias[g].double()
            for expected in ((4, 2, 10), (rows, 1, 10)):
                for dtype in (torch.float16, torch.bfloat16):
                    out = poisoned(rows, n, dtype=torch.float32)
                    culet.grouped_gemm_nt(x.to(dtype), w.to(dtype), out, offsets=offsets, bias=bias, expected=expected)
                    self.same(out, wanted)

    def test_refused(self):
        x, w, offsets = whole(8, 64), whole(2, 32, 64, seed=1), ints([0, 3, 8])
        for words, call in (
                ("another type", lambda: culet.grouped_gemm_nt(x.float(), w.float(), offsets=offsets)),
                ("512 groups", lambda: culet.grouped_gemm_nt(x, whole(513, 8, 64), offsets=ints([0] * 514))),
                ("16 bytes", lambda: culet.grouped_gemm_nt(whole(8, 65)[:, 1:], w, offsets=offsets)),
                ("another device", lambda: culet.grouped_gemm_nt(x, w, offsets=offsets.cpu()))):
            with self.assertRaisesRegex(culet.Error, words):
                call()


@needs_gpu
class DeepGemm(unittest.TestCase):
    near = Grouped.near

    def test_contiguous(self):
        from culet import deep_gemm
        counts, n, k = (0, 1, 129, 0, 128, 7), 256, 512
        layout = ints([g for c, count in enumerate(counts) for g in [c] * count + [-1] * (-count % 128)])
        x, w = whole(len(layout), k), whole(len(counts), n, k, seed=1)
        ranges = [(int((layout == g).nonzero()[0]) if count else 0,) * 2 for g, count in enumerate(counts)]
        ranges = [(begin, begin + count) for (begin, _), count in zip(ranges, counts)]
        a, b, of_a, of_b = quantised(x, w)
        aligned = a[0], deep_gemm.get_mn_major_tma_aligned_tensor(a[1])
        ends = ints([0, 1, 128 + 129, 384, 384 + 128, 512 + 7])
        calls = {
            "bf16": (lambda d: deep_gemm.m_grouped_bf16_gemm_nt_contiguous(x, w, d, layout), x, w),
            "fp8": (lambda d: deep_gemm.m_grouped_fp8_gemm_nt_contiguous(a, b, d, layout), of_a, of_b),
            "mn-major": (lambda d: deep_gemm.m_grouped_fp8_gemm_nt_contiguous(aligned, b, d, layout), of_a, of_b),
            "ends": (lambda d: deep_gemm.m_grouped_fp8_gemm_nt_contiguous(aligned, b, d, ends, use_psum_layout=True),
                     of_a, of_b)}
        for name, (call, of_x, of_w) in calls.items():
            with self.subTest(name):
                d, wanted = poisoned(len(layout), n), wanted_of(of_x, of_w, ranges)
                call(d)
                self.near(d / 64, wanted / 64)
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    call(d)
                d.fill_(POISON)
                graph.replay()
                self.near(d / 64, wanted / 64)

    def test_masked(self):
        from culet import deep_gemm
        groups, most, n, k = 6, 136, 256, 512
        counts = ints([136, 0, 5, 1, 64, 500])
        x, w = whole(groups * most, k), whole(groups, n, k, seed=1)
        ranges = [(g * most, g * most + min(int(count), most)) for g, count in enumerate(counts)]
        d = poisoned(groups, most, n)
        a, b, of_a, of_b = quantised(x, w)
        values, scales = a[0].view(groups, most, k), a[1].view(groups, most, -1)
        for expected_m in (1, 40, 136):
            deep_gemm.m_grouped_bf16_gemm_nt_masked(x.view(groups, most, k), w, d.fill_(POISON), counts, expected_m)
            self.near(d.flatten(0, 1) / 64, wanted_of(x, w, ranges) / 64)
            for given in (scales, deep_gemm.get_mn_major_tma_aligned_tensor(scales)):
                deep_gemm.m_grouped_fp8_gemm_nt_masked((values, given), b, d.fill_(POISON), counts, expected_m)
                self.near(d.flatten(0, 1) / 64, wanted_of(of_a, of_b, ranges) / 64)

    def test_settings(self):
        from culet import deep_gemm
        every = deep_gemm.get_num_sms()
        self.addCleanup(deep_gemm.set_num_sms, every)
        self.addCleanup(deep_gemm.set_pdl, False)
        x, w, d = whole(256, 512), whole(2, 1024, 512, seed=1), poisoned(256, 1024)
        layout = ints([0] * 128 + [1] * 100 + [-1] * 28)
        for count, pdl in ((every // 2, False), (every, True)):
            deep_gemm.set_num_sms(count)
            deep_gemm.set_pdl(pdl)
            deep_gemm.m_grouped_bf16_gemm_nt_contiguous(x, w, d.fill_(POISON), layout)
            self.assertTrue(torch.equal(d, wanted_of(x, w, [(0, 128), (128, 228)]).to(d.dtype)))


if __name__ == "__main__":
    unittest.main()
