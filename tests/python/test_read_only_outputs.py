"""Outputs that may not be written, where the call before took others of the same shape."""

import os
import unittest

os.environ["CULET_CACHE"] = "off"

import culet
from host_arrays import Product


class Shown:
    """An array with all that numpy shows of its own, whose calls take the shortest way."""

    dtype = "uint16"

    def __init__(self, array, read_only=False):
        self.__array_interface__ = array.__array_interface__
        self.__array_interface__["data"] = (array.pointer, read_only)


class ReadOnlyOutputs(unittest.TestCase):
    def setUp(self):
        self.product = Product(2, 3, 128)
        self.d = self.product.output()

    def refused(self, words, call):
        before = self.d.elements()
        with self.assertRaisesRegex(culet.InvalidArgument, words + " is read-only; give a writable array"):
            call()
        self.assertEqual(self.d.elements(), before)

    def test_a_call(self):
        multiply = lambda d: culet.fp8_gemm_nt(*map(self.shown, self.product.operands), d)
        for _ in range(2):
            multiply(Shown(self.d))
        self.assertEqual(self.product.wrong(self.d), 0)
        self.refused("d", lambda: multiply(Shown(self.d, read_only=True)))

    def test_a_plan(self):
        plan = culet.plan(*self.product.operands, Shown(self.d))
        plan()
        plan(self.product.a, Shown(self.d))
        self.assertEqual(self.product.wrong(self.d), 0)
        self.refused("d", lambda: plan(self.product.a, Shown(self.d, read_only=True)))

    @staticmethod
    def shown(pair):
        return tuple(map(Shown, pair))


if __name__ == "__main__":
    unittest.main()
