"""What does not fit: sizes beyond 31 bits, numbers beyond FP32, strides that overlap; and arguments of types that
compare with nothing. Each is a culet.Error that names the argument."""

import types
import unittest
from pathlib import Path

import culet
from host_arrays import Array

ADDER = Path(__file__).resolve().parents[2] / "examples/adder"
BIG = 2**31


class Unequal:
    """Compares as numpy's arrays do: not to a truth."""

    def __eq__(self, other):
        raise ValueError("ambiguous")

    __ne__ = __eq__
    __hash__ = None


def showing(array, **interface):
    """The memory of an array with another shape, or other strides, than it has."""
    return types.SimpleNamespace(__array_interface__=array.__array_interface__ | interface)


class Overflow(unittest.TestCase):
    def setUp(self):
        self.a, self.b, self.out = (Array("f4", shape, (shape[1], 1), 1.0) for shape in ((4, 64), (8, 64), (4, 8)))
        self.before = self.out.data.raw

    def refused(self, words, function, *arguments, **options):
        for call in (function, culet.plan) if function is culet.gemm else (function,):
            with self.subTest(words=words, call=call.__name__), self.assertRaisesRegex(culet.InvalidArgument, words):
                call(*arguments, **options)
        self.assertEqual(self.out.data.raw, self.before)

    def test_sizes(self):
        for rows, cols in ((BIG, 64), (2 * BIG + 4, 64), (4, 2 * BIG + 64)):
            def of(first, second):
                return showing(self.a, shape=(first, second), strides=(4 * second, 4))

            self.refused(f"a has the shape .*; give at most {BIG - 1} rows", culet.gemm, of(rows, cols), of(8, cols),
                         of(rows, 8))
        # Of four rows, 2^32 more would be none more.
        x = showing(Array("u2", (4, 64), (64, 1)), shape=(2 * BIG + 4, 64), strides=(128, 2))
        out = (showing(Array("u1", (4, 64), (64, 1)), shape=(2 * BIG + 4, 64), strides=(64, 1)),
               showing(self.a, shape=(2 * BIG + 4, 1), strides=(4, 4)))
        self.refused("x has the shape", culet.quantize_fp8, x, out=out)
        self.refused("weight has the shape", culet.pack, showing(self.b, shape=(2 * BIG + 8, 64), strides=(256, 4)))
        count = 2 * BIG + 1
        self.refused("a batch has the shape", culet.gemm, *(
            showing(array, shape=(count, *array.shape), strides=(1024, *array.__array_interface__["strides"]))
            for array in (self.a, self.b, self.out)))
        self.refused(f"give numbers from 1 to {BIG - 1}", culet.tune_model, ADDER, [BIG])

    def test_bytes(self):
        """What the library finds too large is a wrong argument, too."""
        far = showing(self.a, shape=(3, 64), strides=(2**62, 4))
        with self.assertRaises(culet.InvalidArgument) as raised:
            culet.gemm(far, self.b, Array("f4", (3, 8), (8, 1)))
        self.assertEqual(raised.exception.status, "OUT_OF_RANGE")

    def test_numbers(self):
        for options, words in (({"alpha": 1e39}, "alpha is 1e.39; FP32"), ({"alpha": -10**400}, "alpha is an integer of"),
                               ({"beta": 1e300}, "beta is 1e.300; FP32"), ({"a_scale": 1e200}, "a_scale is 1e.200"),
                               ({"a_scale": 1e30, "b_scale": 1e30}, "alpha times b_scale is .*e.60; FP32"),
                               ({"b_scale": 10**400}, "b_scale is an integer of")):
            self.refused(words, culet.gemm, self.a, self.b, self.out, **options)
        step = culet.plan(self.a, self.b, self.out)
        self.refused("alpha is 1e.39", step.__call__, alpha=1e39)
        culet.gemm(self.a, self.b, self.out, alpha=3.4e38 / 64)  # the largest that there is
        self.assertAlmostEqual(self.out[0, 0] / 3.4e38, 1, 6)
        culet.gemm(self.a, self.b, self.out, alpha=float("inf"))  # asked for
        self.assertEqual(self.out[0, 0], float("inf"))

    def test_strides(self):
        for strides in ((0, 4), (-256, 4), (128, 4), (4, 8), (4, -16)):
            self.refused("a of shape .* overlap or run backwards", culet.gemm, showing(self.a, strides=strides), self.b,
                         self.out)

    def test_what_compares_with_nothing(self):
        for name in ("accumulate", "epilogue", "alpha", "pdl"):
            self.refused(f"{name} is", culet.gemm, self.a, self.b, self.out, **{name: Unequal()})
        self.refused("granularity is", culet.quantize_fp8, self.a, Unequal())
        self.refused("format is", culet.pack, self.b, Unequal())

    def test_interfaces(self):
        array = self.a.__array_interface__
        for change in ({"data": ("x", False)}, {"shape": ("4", 64)}, {"shape": 4}, {"strides": ("a", 4)}):
            self.refused("a is a SimpleNamespace whose __array_interface__ gives no address", culet.gemm,
                         types.SimpleNamespace(__array_interface__=array | change), self.b, self.out)

    def test_texts(self):
        self.refused("path is .*, which has a zero byte", culet.load_cache, "a\0b")
        llm = culet.LLM(ADDER, device="cpu")
        self.refused("prompt is no Unicode text", llm.generate, "1+\ud800")
        self.refused("stop is 3; give a text", llm.generate, "1+2=", stop=3)
        self.refused("seed is .* below 2\\^64", llm.generate, "1+2=", seed=2**64)


if __name__ == "__main__":
    unittest.main()
