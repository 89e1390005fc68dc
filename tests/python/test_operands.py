"""culet.gemm beyond plain matrices: batches, packed weights, gated epilogues."""

import itertools
import math
import os
import random
import struct
import sys
import types
import unittest
from unittest import mock

os.environ["CULET_CACHE"] = "off"

import culet
from culet import _plans
from host_arrays import E4M3, POISON, Array, Product, to_bf16
from test_gemm import FakeTensor

NAN = float("nan")


def made(shape, kind="f4", fill=0, gap=0):
    """An array of any rank in C order, with `gap` elements between its matrices."""
    strides = [1]
    for axis in range(len(shape) - 1, 0, -1):
        strides.insert(0, strides[0] * shape[axis] + (gap if axis == len(shape) - 2 else 0))
    return Array(kind, shape, tuple(strides), fill=fill)


def put(array, at, value):
    place = sum(i * stride for i, stride in zip(at, array.strides))
    struct.pack_into("=" + array.format, array.data, place * array.size, value)


def get(array, at):
    place = sum(i * stride for i, stride in zip(at, array.strides))
    return struct.unpack_from("=" + array.format, array.data, place * array.size)[0]


def numbers(shape, seed, gap=0, kind="f4"):
    """Small whole numbers, and their values."""
    pick, array, values = random.Random(seed), made(shape, kind, gap=gap), {}
    for at in itertools.product(*map(range, shape)):
        values[at] = pick.choice((0, 1, 2, 3, -1))
        put(array, at, {"f4": values[at], "u1": E4M3[values[at]],
                        "u2": to_bf16(values[at])}[kind])
    return array, values


def dot(a, b, i, j, k):
    return sum(a[(*i, l)] * b[(*j, l)] for l in range(k))


class Batches(unittest.TestCase):
    B, M, N, K = 3, 4, 9, 20

    def check(self, a_batch, b_batch, out, expected_batch=3, **options):
        a, a_values = numbers((*a_batch, self.M, self.K), 1, gap=5 if a_batch else 0)
        b, b_values = numbers((*b_batch, self.N, self.K), 2)
        self.assertIs(culet.gemm(a, b, out, **options), out)
        for s, i, j in itertools.product(range(expected_batch), range(self.M), range(self.N)):
            of_a = (s if a_batch[0] > 1 else 0, i) if a_batch else (i,)
            of_b = (s if b_batch[0] > 1 else 0, j) if b_batch else (j,)
            wanted = dot(a_values, b_values, of_a, of_b, self.K)
            self.assertEqual(get(out, (s, i, j)), wanted, (s, i, j))

    def test_of_both_and_of_one(self):
        for a_batch, b_batch in (((3,), (3,)), ((3,), ()), ((), (3,)), ((3,), (1,)), ((1,), (3,))):
            with self.subTest(a=a_batch, b=b_batch):
                self.check(a_batch, b_batch, made((3, self.M, self.N), fill=NAN, gap=7))

    def test_of_one_matrix(self):
        self.check((1,), (), made((1, self.M, self.N), fill=NAN), expected_batch=1)

    def test_scales_a_row_of_each(self):
        m, n, k = 3, 5, 40
        (a, a_values), (b, b_values) = (numbers((2, rows, k), rows, kind="u1") for rows in (m, n))
        u, us = numbers((2, m), 5)
        v, vs = numbers((2, n), 6)
        out = made((2, m, n), "u2", fill=POISON)
        culet.gemm(a, b, out, a_scale=u, b_scale=v)
        for s, i, j in itertools.product(range(2), range(m), range(n)):
            wanted = dot(a_values, b_values, (s, i), (s, j), k) * us[s, i] * vs[s, j]
            self.assertEqual(get(out, (s, i, j)), to_bf16(wanted))

    def test_blocks_of_each(self):
        m, n, k = 2, 3, 130
        (a, a_values), (b, b_values) = (numbers((2, rows, k), rows, kind="u1") for rows in (m, n))
        u, us = numbers((2, m, 2), 5)
        v, vs = numbers((2, 1, 2), 6)
        out = made((2, m, n), "f4", fill=NAN)
        culet.gemm(a, b, out, a_scale=u, b_scale=v)
        for s, i, j in itertools.product(range(2), range(m), range(n)):
            wanted = sum(a_values[s, i, l] * b_values[s, j, l] * us[s, i, l // 128] *
                         vs[s, 0, l // 128] for l in range(k))
            self.assertEqual(get(out, (s, i, j)), wanted)

    def test_c_of_all(self):
        m, n, k = 2, 3, 4
        (a, a_values), (b, b_values) = numbers((2, m, k), 1), numbers((n, k), 2)
        c, cs = numbers((2, m, n), 3)
        out = made((2, m, n), fill=NAN)
        culet.gemm(a, b, out, c=c, beta=2)
        for s, i, j in itertools.product(range(2), range(m), range(n)):
            self.assertEqual(get(out, (s, i, j)),
                             dot(a_values, b_values, (s, i), (j,), k) + 2 * cs[s, i, j])

    def test_refused(self):
        a, b = made((3, 2, 4)), made((2, 5, 4))
        with self.assertRaisesRegex(culet.InvalidArgument, "as many matrices"):
            culet.gemm(a, b, made((3, 2, 5)))
        with self.assertRaisesRegex(culet.InvalidArgument, r"out has the shape \(2, 5\)"):
            culet.gemm(a, made((5, 4)), made((2, 5)))
        with self.assertRaisesRegex(culet.InvalidArgument, "as many matrices, or one"):
            culet.gemm(a, made((5, 4)), made((3, 2, 5)), c=made((2, 2, 5)), beta=1)
        with self.assertRaisesRegex(culet.InvalidArgument, "the first axis for them"):
            culet.gemm(made((3, 2, 4), "u1"), made((5, 4), "u1"), made((3, 2, 5), "u2"),
                       a_scale=made((2,)))
        with self.assertRaisesRegex(culet.InvalidArgument, "a batch of them"):
            culet.gemm(made((3, 2, 4, 1)), b, made((3, 2, 5)))


class PackedWeights(unittest.TestCase):
    def test_host_arrays(self):
        for kind, out_kind, n in itertools.product(("f4", "u2", "u1"), ("f4", "u2"), (5, 64, 100)):
            if kind == "f4" and out_kind == "u2":
                continue
            with self.subTest(kind=kind, out=out_kind, n=n):
                a, a_values = numbers((3, 24), 1, kind=kind)
                b, b_values = numbers((n, 24), 2, kind=kind)
                scales = {} if kind != "u1" else {"a_scale": made((3,), fill=2),
                                                  "b_scale": made((n,), fill=0.5)}
                packed = culet.pack(b)
                self.assertEqual((packed.shape, packed.format), ((n, 24), "k_major_n64"))
                self.assertIn(f"shape=({n}, 24)", repr(packed))
                out = made((3, n), out_kind, fill=NAN if out_kind == "f4" else POISON)
                b.data = None  # not needed any more
                for _ in range(2):
                    culet.gemm(a, packed, out, **scales)
                for i, j in itertools.product(range(3), range(n)):
                    wanted = dot(a_values, b_values, (i,), (j,), 24)
                    self.assertEqual(get(out, (i, j)),
                                     to_bf16(wanted) if out_kind == "u2" else wanted)

    def test_tensors(self):
        (a, a_values), (b, b_values) = numbers((3, 24), 1), numbers((70, 24), 2)
        packed, out = culet.pack(b), made((3, 70), fill=NAN)
        torch = types.SimpleNamespace(Tensor=FakeTensor)
        with mock.patch.dict(_plans.PLANS, clear=True), mock.patch.dict(sys.modules, torch=torch):
            for _ in range(2):
                culet.gemm(FakeTensor(a, "float32"), packed, FakeTensor(out, "float32"))
                culet.gemm(FakeTensor(a, "float32"), FakeTensor(b, "float32"),
                           FakeTensor(out, "float32"))
            self.assertEqual(len(_plans.PLANS), 2)
        for i, j in itertools.product(range(3), range(70)):
            self.assertEqual(get(out, (i, j)), dot(a_values, b_values, (i,), (j,), 24))

    def test_blocks(self):
        product = Product(3, 130, 200)
        (a, u), (b, v) = product.operands
        d = product.output()
        culet.fp8_gemm_nt((a, u), (culet.pack(b), v), d)
        self.assertEqual(product.wrong(d), 0)

    def test_refused(self):
        weight = made((5, 24))
        packed, out = culet.pack(weight), made((3, 5))
        for words, call in (
                ("format is 'rows'", lambda: culet.pack(weight, "rows")),
                ("format is 1", lambda: culet.pack(weight, 1)),
                ("weight is a int", lambda: culet.pack(3)),
                ("nothing to pack", lambda: culet.pack(made((0, 4)))),
                ("a is packed", lambda: culet.gemm(packed, packed, out)),
                ("weight is packed", lambda: culet.pack(packed)),
                ("b has the shape", lambda: culet.gemm(made((3, 25)), packed, out))):
            with self.subTest(words=words), self.assertRaisesRegex(culet.InvalidArgument, words):
                call()


def silu(x):
    return x / (1 + math.exp(-x))


class GatedEpilogue(unittest.TestCase):
    M, N, K = 3, 48, 10
    epilogue, described = "gated_silu", "gated_silu aligned"

    def pair(self, j):
        """The rows of b that column j of out is made of."""
        return j // 8 * 16 + j % 8, j // 8 * 16 + 8 + j % 8

    def setUp(self):
        self.a, self.a_values = numbers((self.M, self.K), 1)
        self.b, self.b_values = numbers((self.N, self.K), 2)
        self.bias, self.bias_values = numbers((self.N,), 3)

    def expected(self, i, j):
        def value(column):
            return dot(self.a_values, self.b_values, (i,), (column,), self.K) + \
                self.bias_values[column,]
        gate, up = self.pair(j)
        return silu(value(gate)) * value(up)

    def test_pairs_of_rows(self):
        out = made((self.M, self.N // 2), fill=NAN)
        culet.gemm(self.a, self.b, out, bias=self.bias, epilogue=self.epilogue)
        for i, j in itertools.product(range(self.M), range(self.N // 2)):
            self.assertAlmostEqual(get(out, (i, j)), self.expected(i, j), delta=1e-4)
        plain = made((self.M, self.N), fill=NAN)
        culet.gemm(self.a, self.b, plain, bias=self.bias)  # has a plan of its own
        first = dot(self.a_values, self.b_values, (0,), (0,), self.K) + self.bias_values[0,]
        self.assertEqual(get(plain, (0, 0)), first)

    def test_quantised(self):
        out, scales = made((self.M, self.N // 2), "u1", fill=0x7F), made((self.M, 1), fill=NAN)
        culet.gemm(self.a, self.b, out, bias=self.bias, epilogue=self.epilogue, out_scale=scales)
        for i in range(self.M):
            row = [self.expected(i, j) for j in range(self.N // 2)]
            largest = max(range(len(row)), key=lambda j: abs(row[j]))
            self.assertAlmostEqual(get(scales, (i, 0)), abs(row[largest]) / 448, delta=1e-5)
            self.assertEqual(get(out, (i, largest)) & 0x7F, 0x7E)  # 448

    def test_explained(self):
        out = made((self.M, self.N // 2))
        text = culet.explain(self.a, self.b, out, epilogue=self.epilogue)
        self.assertIn(self.described, text)

    def test_refused(self):
        out = made((self.M, self.N // 2))
        for words, options in (
                ("epilogue is 'gelu'; give None, 'gated_silu' or 'gated_silu_halves'", {"epilogue": "gelu"}),
                ("epilogue is \\[", {"epilogue": [self.epilogue]}),
                ("out_scale is given", {"out_scale": made((self.M, 1))}),
                ("out_scale has the shape", {"epilogue": self.epilogue, "out_scale": made((1, 1))}),
                ("out holds float32", {"epilogue": self.epilogue, "out_scale": made((self.M, 1))}),
                ("give a c", {"epilogue": self.epilogue, "beta": 1})):
            with self.subTest(words=words), self.assertRaisesRegex(culet.InvalidArgument, words):
                culet.gemm(self.a, self.b, out, **options)
        with self.assertRaisesRegex(culet.InvalidArgument, "multiple of 16"):
            culet.gemm(self.a, made((24, self.K)), made((self.M, 12)), epilogue=self.epilogue)
        with self.assertRaisesRegex(culet.InvalidArgument, "pairs b's"):
            culet.gemm(self.a, self.b, made((self.M, self.N)), epilogue=self.epilogue)


class GatedEpilogueOfHalves(GatedEpilogue):
    epilogue, described = "gated_silu_halves", "gated_silu of halves aligned"

    def pair(self, j):
        return j, self.N // 2 + j

    def test_same_as_eights(self):
        """Of a batch, with c: the same bits as of the same weights by eights."""
        rows = [row for pair in map(super().pair, range(self.N // 2)) for row in pair]
        halves = [row for pair in map(self.pair, range(self.N // 2)) for row in pair]
        b, b_values = numbers((2, self.N, self.K), 4)
        c, c_values = numbers((self.M, self.N), 5)
        eights_b, eights_c = made((2, self.N, self.K)), made((self.M, self.N))
        for to, source in zip(rows, halves):
            for i in range(2):
                for k in range(self.K):
                    put(eights_b, (i, to, k), b_values[i, source, k])
            for i in range(self.M):
                put(eights_c, (i, to), c_values[i, source])
        outs = [made((2, self.M, self.N // 2), fill=NAN) for _ in range(3)]
        culet.gemm(self.a, b, outs[0], c=c, beta=2, epilogue=self.epilogue)
        culet.gemm(self.a, eights_b, outs[1], c=eights_c, beta=2, epilogue="gated_silu")
        step = culet.plan(self.a, b, outs[2], c=c, beta=2, epilogue=self.epilogue)
        step()
        self.assertEqual(outs[0].data.raw, outs[1].data.raw)
        self.assertEqual(outs[0].data.raw, outs[2].data.raw)


if __name__ == "__main__":
    unittest.main()
