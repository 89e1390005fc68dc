"""culet.gemm on the CPU: formats by the shapes of scales, c, bias, beta, outputs it makes, errors."""

import itertools
import os
import random
import struct
import sys
import types
import unittest
from unittest import mock

os.environ["CULET_CACHE"] = "off"

import culet
from host_arrays import E4M3, POISON, Array, columns, rows, to_bf16
from test_gemm import FakeTensor

F16_POISON = 0x7E11


def bits_of(kind, value):
    if kind == "bf16":
        return to_bf16(value)
    if kind == "f16":
        return struct.unpack("=H", struct.pack("=e", value))[0]
    return E4M3[value] if kind == "fp8" else value


class Half(Array):
    """F16: numpy shows it as f2, so the bits are stored as u2 and shown as that."""

    @property
    def __array_interface__(self):
        return {**super().__array_interface__, "typestr": "<f2"}

    dtype = "float16"


def array(kind, shape, order=rows, fill=0):
    if kind == "f16":
        plain = order("u2", shape, fill=fill)
        return Half("u2", plain.shape, plain.strides, fill=fill)
    return order({"fp8": "u1", "bf16": "u2", "f32": "f4"}[kind], shape, fill=fill)


class Case:
    """Small whole numbers, so that every result is exact in every type."""

    def __init__(self, kind, m, n, k, order=rows, seed=3):
        self.pick = random.Random(seed)
        self.kind, self.m, self.n, self.k = kind, m, n, k
        self.a, self.a_values = self.matrix((m, k), order)
        self.b, self.b_values = self.matrix((n, k), order)

    def matrix(self, shape, order=rows, kind=None, numbers=(0, 1, 2, -1)):
        made, values = array(kind or self.kind, shape, order), {}
        for at in itertools.product(*map(range, shape)):
            values[at] = self.pick.choice(numbers)
            made[at] = bits_of(kind or self.kind, values[at])
        return made, values

    def scales(self, shape):
        """FP32 powers of two of any rank, with their values in order."""
        count = 1
        for extent in shape:
            count *= extent
        values = [self.pick.choice((0.5, 1, 2)) for _ in range(count)]
        strides = [1] * len(shape)
        for axis in range(len(shape) - 1, 0, -1):
            strides[axis - 1] = strides[axis] * shape[axis]
        made = Array("f4", shape, tuple(strides))
        for i, value in enumerate(values):
            struct.pack_into("=f", made.data, 4 * i, value)
        return made, values

    def dot(self, i, j, begin=0, end=None):
        return sum(self.a_values[i, l] * self.b_values[j, l]
                   for l in range(begin, self.k if end is None else end))

    def wrong(self, out, expected, kind="bf16"):
        found = 0
        for i in range(self.m):
            for j in range(self.n):
                wanted = bits_of(kind, expected(i, j))
                found += out[i, j] != wanted
        return found


class Formats(unittest.TestCase):
    def test_types_and_orders(self):
        for kind, order in itertools.product(("f32", "bf16", "f16"), (rows, columns)):
            with self.subTest(kind=kind, order=order.__name__):
                case = Case(kind, 3, 17, 24, order)
                out = array(kind, (3, 17), order, fill=float("nan") if kind == "f32" else POISON)
                self.assertIs(culet.gemm(case.a, case.b, out), out)
                self.assertEqual(case.wrong(out, case.dot, kind), 0)

    def test_one_scale(self):
        case = Case("fp8", 5, 9, 130)
        for shape_a, shape_b in itertools.product(((), (1,), (1, 1)), repeat=2):
            with self.subTest(a=shape_a, b=shape_b):
                (u, us), (v, vs) = case.scales(shape_a), case.scales(shape_b)
                out = rows("u2", (5, 9), fill=POISON)
                culet.gemm(case.a, case.b, out, a_scale=u, b_scale=v)
                self.assertEqual(case.wrong(out, lambda i, j: case.dot(i, j) * us[0] * vs[0]), 0)

    def test_numbers_as_scales(self):
        case = Case("fp8", 5, 9, 130)
        out = rows("u2", (5, 9), fill=POISON)
        culet.gemm(case.a, case.b, out, a_scale=2, b_scale=0.25, alpha=4)
        self.assertEqual(case.wrong(out, lambda i, j: case.dot(i, j) * 2), 0)

    def test_a_scale_a_row(self):
        for m, n in ((5, 9), (1, 9), (5, 1)):
            case = Case("fp8", m, n, 130)
            for shape_a, shape_b in itertools.product(((m,), (m, 1)), ((n,), (1, n), (n, 1))):
                with self.subTest(a=shape_a, b=shape_b):
                    (u, us), (v, vs) = case.scales(shape_a), case.scales(shape_b)
                    out = rows("u2", (m, n), fill=POISON)
                    culet.gemm(case.a, case.b, out, a_scale=u, b_scale=v)
                    self.assertEqual(
                        case.wrong(out, lambda i, j: case.dot(i, j) * us[i] * vs[j]), 0)

    def test_strided_row_scales(self):
        case = Case("fp8", 4, 3, 64)
        u, v = Array("f4", (4,), (3,)), Array("f4", (1, 3), (1, 2))
        for i in range(4):
            struct.pack_into("=f", u.data, 12 * i, 2.0 ** i)
        for j in range(3):
            v[0, j] = 2.0 ** -j
        out = rows("u2", (4, 3), fill=POISON)
        culet.gemm(case.a, case.b, out, a_scale=u, b_scale=v)
        self.assertEqual(case.wrong(out, lambda i, j: case.dot(i, j) * 2.0 ** (i - j)), 0)

    def test_blocks(self):
        for m, n, k in ((5, 131, 140), (1, 131, 140), (5, 1, 128), (3, 4, 100)):
            with self.subTest(m=m, n=n, k=k):
                case = Case("fp8", m, n, k)
                groups = -(-k // 128)
                (u, us), (v, vs) = case.scales((m, groups)), case.scales((-(-n // 128), groups))
                out = rows("u2", (m, n), fill=POISON)
                culet.gemm(case.a, case.b, out, a_scale=u, b_scale=v)

                def expected(i, j):
                    return sum(case.dot(i, j, 128 * g, min(k, 128 * g + 128)) *
                               us[i * groups + g] * vs[j // 128 * groups + g]
                               for g in range(groups))

                self.assertEqual(case.wrong(out, expected), 0)

    def test_the_format_is_what_both_shapes_allow(self):
        # (1, 1) for a is a tensor's, a row's or a block's; what b has decides.
        for (m, n, k), a, b, words in (
                ((1, 9, 64), (1, 1), (9,), "U: float32 per row V: float32 per column"),
                ((1, 9, 64), (1, 1), (1,), "U: float32 per tensor V: float32 per tensor"),
                ((2, 300, 64), (2, 1), (3, 1), "U: float32 1x128 V: float32 128x128"),
                ((2, 3, 64), (1,), (3,), "U: float32 per tensor V: float32 per column")):
            case = Case("fp8", m, n, k)
            told = culet.explain(case.a, case.b, rows("u2", (m, n)), a_scale=case.scales(a)[0],
                                 b_scale=case.scales(b)[0])
            self.assertIn(words, told)

    def test_c_bias_alpha_beta(self):
        case = Case("f32", 4, 7, 16)
        c, cs = case.matrix((4, 7))
        bias, bs = case.scales((7,))
        out = rows("f4", (4, 7), fill=float("nan"))
        culet.gemm(case.a, case.b, out, c=c, bias=bias, alpha=2, beta=-0.5)
        self.assertEqual(case.wrong(
            out, lambda i, j: 2 * case.dot(i, j) - 0.5 * cs[i, j] + bs[j], "f32"), 0)
        # Without c the output itself is what a beta adds to.
        culet.gemm(case.a, case.b, out, beta=1.0)
        self.assertEqual(case.wrong(
            out, lambda i, j: 3 * case.dot(i, j) - 0.5 * cs[i, j] + bs[j], "f32"), 0)
        # The same shapes without them: plans do not mix.
        culet.gemm(case.a, case.b, out)
        self.assertEqual(case.wrong(out, case.dot, "f32"), 0)

    def test_fast_accumulation_is_a_problem_of_its_own(self):
        case = Case("fp8", 4, 7, 64)
        for accumulate in ("precise", "fast"):
            out = rows("u2", (4, 7), fill=POISON)
            culet.gemm(case.a, case.b, out, accumulate=accumulate)
            self.assertEqual(case.wrong(out, case.dot), 0)
            told = "accumulate=fast" in culet.explain(case.a, case.b, out, accumulate=accumulate)
            self.assertEqual(told, accumulate == "fast")

    def test_tuning(self):
        case = Case("bf16", 2, 8, 32)
        with culet.autotune(budget=20) as tuned:
            for accumulate in ("precise", "precise", "fast"):
                out = rows("u2", (2, 8), fill=POISON)
                culet.gemm(case.a, case.b, out, accumulate=accumulate)
                self.assertEqual(case.wrong(out, case.dot), 0)
        self.assertEqual([(t.m, t.n, t.k) for t in tuned.results], [(2, 8, 32)] * 2)


class Outputs(unittest.TestCase):
    """Those that gemm makes, with a torch that has no more than it asks of it."""

    def setUp(self):
        class dtype(str):
            pass

        def empty(shape, dtype, device):
            kind = "f4" if dtype.endswith("float32") else "u2"
            return FakeTensor(rows(kind, shape, fill=0), str(dtype))

        def empty_strided(shape, strides, dtype, device):
            self.assertEqual(strides, (shape[1], 1))
            return empty(shape, dtype, device)

        torch = types.SimpleNamespace(
            Tensor=FakeTensor, dtype=dtype, empty=empty, empty_strided=empty_strided, bfloat16=dtype("torch.bfloat16"),
            float32=dtype("torch.float32"), float16=dtype("torch.float16"))
        patch = mock.patch.dict(sys.modules, torch=torch)
        patch.start()
        self.addCleanup(patch.stop)
        self.case = Case("bf16", 3, 5, 8)
        self.operands = [FakeTensor(x, "torch.bfloat16") for x in (self.case.a, self.case.b)]

    def test_of_the_type_of_a(self):
        out = culet.gemm(*self.operands)
        self.assertEqual(out.dtype, "torch.bfloat16")
        self.assertEqual(self.case.wrong(out.array, self.case.dot), 0)

    def test_of_out_dtype(self):
        for dtype in ("float32", sys.modules["torch"].float32):
            out = culet.gemm(*self.operands, out_dtype=dtype)
            self.assertEqual(self.case.wrong(out.array, self.case.dot, "f32"), 0)

    def test_refused(self):
        with self.assertRaisesRegex(culet.InvalidArgument, "out_dtype is 'int3'"):
            culet.gemm(*self.operands, out_dtype="int3")
        with self.assertRaisesRegex(culet.InvalidArgument, "neither c nor out"):
            culet.gemm(*self.operands, beta=1)
        out = FakeTensor(rows("u2", (3, 5)), "torch.bfloat16")
        with self.assertRaisesRegex(culet.InvalidArgument, "out holds bfloat16, but out_dtype is f"):
            culet.gemm(*self.operands, out, out_dtype="float32")


class Errors(unittest.TestCase):
    def setUp(self):
        self.case = Case("fp8", 2, 3, 256)
        self.out = rows("u2", (2, 3), fill=POISON)

    def refused(self, words, a=None, b=None, out=None, **options):
        with self.assertRaisesRegex(culet.InvalidArgument, words):
            culet.gemm(a or self.case.a, b or self.case.b, out or self.out, **options)
        self.assertEqual(self.out.elements(), [POISON] * 6)

    def test_shapes(self):
        self.refused("b has the shape .*but a is .*must be .3, 256.", b=rows("u1", (3, 255)))
        self.refused("out has the shape .*must be .2, 3.", out=rows("u2", (3, 2)))
        self.refused("c has the shape .*must be .2, 3.", c=rows("u2", (3, 2)), beta=1)
        self.refused("bias has the shape .*must be .3,.", bias=Array("f4", (2,), (1,)))
        self.refused("bias has the shape .*give a vector", bias=rows("f4", (1, 3)))
        self.refused("a has the shape .*give a matrix", a=Array("u1", (512,), (1,)))

    def test_scales(self):
        def scales(*shape):
            return self.case.scales(shape)[0]

        self.refused(r"a_scale has the shape \(3,\), but a is \(2, 256\): give one scale, one a row "
                     r"\(2,\), or one a block of 128 \(2, 2\)", a_scale=scales(3), b_scale=scales(3))
        self.refused("b_scale has the shape", a_scale=scales(2), b_scale=scales(2))
        self.refused("of different formats", a_scale=scales(2, 2), b_scale=scales(3))
        self.refused("a_scale holds uint8; it must hold float32", a_scale=Array("u1", (), ()))

    def test_types(self):
        self.refused("a holds float64", a=_Doubles("u1", (2, 256), (256, 1)))
        self.refused("out holds uint8; it must hold bfloat16", out=rows("u1", (2, 3)))
        self.refused("a is a str", a="no matrix")

    def test_options(self):
        self.refused("accumulate is 'quick'; give 'precise', 'fast' or 'full'", accumulate="quick")
        self.refused("alpha is 'two'; give a number", alpha="two")
        self.refused("beta is None; give a number", beta=None)
        self.refused("c is given, but beta is 0", c=rows("u2", (2, 3)))
        self.refused("pdl is 'yes'; give True or False", pdl="yes")
        with self.assertRaisesRegex(culet.InvalidArgument, "explain takes no scale"):
            culet.explain(self.case.a, self.case.b, self.out, scale=1)

    def test_a_host_array_needs_an_out(self):
        with self.assertRaisesRegex(culet.InvalidArgument, "out is None, and a is a Array"):
            culet.gemm(self.case.a, self.case.b)


class _Doubles(Array):
    @property
    def __array_interface__(self):
        return {**super().__array_interface__, "typestr": "<f8", "strides": None}


if __name__ == "__main__":
    unittest.main()
