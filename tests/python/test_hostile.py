"""Arguments that nobody should give, memory that may not be written, errors that travel between
processes."""

import copy
import ctypes
import mmap
import multiprocessing
import pickle
import tempfile
import types
import unittest
from concurrent.futures import ProcessPoolExecutor

import culet
from host_arrays import GUARD, Product, rows


class ReadOnly:
    """An array that says, as numpy does, that it must not be written."""

    def __init__(self, array, **interface):
        self.__array_interface__ = array.__array_interface__ | interface
        self.__array_interface__["data"] = (self.__array_interface__["data"][0], True)
        self.dtype = types.SimpleNamespace()  # numpy's arrays take a shorter way


class Memory(unittest.TestCase):
    def test_a_read_only_output_is_refused(self):
        product = Product(2, 3, 128)
        for planned in (False, True):
            d = product.output()
            if planned:
                culet.fp8_gemm_nt(*product.operands, d)
                d = product.output()
            for output in (ReadOnly(d), ReadOnly(d)):
                with self.assertRaisesRegex(culet.InvalidArgument, "d is read-only; give a writ"):
                    culet.fp8_gemm_nt(*product.operands, output)
            self.assertEqual(d.elements(), product.output().elements())

    def test_read_only_pages_are_not_touched(self):
        product = Product(2, 3, 128)
        with tempfile.TemporaryFile() as file:
            file.write(bytes(mmap.PAGESIZE))
            file.flush()
            mapped = mmap.mmap(file.fileno(), mmap.PAGESIZE, access=mmap.ACCESS_READ)
            address = _address(mapped)
            d = types.SimpleNamespace(__array_interface__={
                "version": 3, "shape": (2, 3), "typestr": "<u2", "data": (address, True)})
            with self.assertRaisesRegex(culet.InvalidArgument, "d is read-only"):
                culet.fp8_gemm_nt(*product.operands, d)
            self.assertEqual(mapped[:], bytes(mmap.PAGESIZE))

    def test_read_only_inputs_are_welcome(self):
        product = Product(2, 3, 128)
        d = product.output()
        a, b = ([ReadOnly(array) for array in pair] for pair in product.operands)
        for _ in range(2):
            culet.fp8_gemm_nt(a, b, d)
            self.assertEqual(product.wrong(d), 0)


def _address(buffer):
    """Of a buffer that ctypes refuses, because it is read-only."""
    view = (ctypes.c_char * 128)()  # a Py_buffer and some
    get, release = ctypes.pythonapi.PyObject_GetBuffer, ctypes.pythonapi.PyBuffer_Release
    get.argtypes = [ctypes.py_object, ctypes.c_void_p, ctypes.c_int]
    release.argtypes = [ctypes.c_void_p]
    get(buffer, view, 0)
    address = ctypes.c_void_p.from_buffer(view).value
    release(view)
    return address


class Arguments(unittest.TestCase):
    def setUp(self):
        self.product = Product(2, 3, 128)
        self.d = self.product.output()

    def refused(self, words, a, b, d, **options):
        for function in (culet.fp8_gemm_nt, culet.explain):
            with self.assertRaisesRegex(culet.InvalidArgument, words):
                function(a, b, d, **options)
        self.assertEqual(self.d.elements(), self.product.output().elements())

    def test_flags(self):
        a, b = self.product.operands
        culet.fp8_gemm_nt(a, b, self.product.output(), pdl=1)
        for wrong in ([1], 2, "yes", None, float("nan"), {}):
            self.refused(r"pdl is .*; give True or False", a, b, self.d, pdl=wrong)
        for wrong in ([1], "yes", None):
            with self.assertRaisesRegex(culet.InvalidArgument, "persist is .*give True or False"):
                culet.autotune(persist=wrong)
        for wrong in ("soon", None, [1]):
            with self.assertRaisesRegex(culet.InvalidArgument, "budget is .*seconds above 0"):
                culet.autotune(budget=wrong)

    def test_pairs(self):
        a, b = self.product.operands
        for wrong in (1, None, a[0], (a[0],), (*a, a[0])):
            self.refused(r"pairs .*\(\(a, a_scales\)", wrong, b, self.d)
            self.refused(r"pairs .*\(\(a, a_scales\)", a, wrong, self.d)

    def test_none(self):
        (a, u), (b, v) = self.product.operands
        for words, operands in (("a's values is None", ((None, u), (b, v), self.d)),
                                ("a's scales is None", ((a, None), (b, v), self.d)),
                                ("b's values is None", ((a, u), (None, v), self.d)),
                                ("b's scales is None", ((a, u), (b, None), self.d)),
                                ("d is", ((a, u), (b, v), None))):
            self.refused(words, *operands)
        for words, operands in (("a is None", (None, b, self.d)), ("b is None", (a, None, self.d))):
            for function in (culet.gemm, culet.plan, culet.explain):
                with self.assertRaisesRegex(culet.InvalidArgument, words):
                    function(*operands)

    def test_array_interfaces(self):
        a, b = self.product.operands
        good = self.d.__array_interface__
        for typestr, name in (("|O", r"\|O"), ("<M8[us]", "<M8"), ("|V2", r"\|V2"), ("<U5", "<U5"),
                              ("<c8", "<c8"), ("<f8", "float64")):
            self.refused(f"d holds {name}.*must hold bfloat16", a, b, types.SimpleNamespace(
                __array_interface__=good | {"typestr": typestr}))
        for wrong in (None, {}, 1, good | {"data": None}, good | {"shape": 3}, good | {"data": (1,)},
                      good | {"typestr": ""}, good | {"typestr": None},
                      {key: value for key, value in good.items() if key != "data"}):
            self.refused("d is a SimpleNamespace whose __array_interface__", a, b,
                         types.SimpleNamespace(__array_interface__=wrong))
        self.refused("other byte order", a, b, types.SimpleNamespace(
            __array_interface__=good | {"typestr": ">u2"}))

    def test_buffers_of_ctypes(self):
        d = (ctypes.c_uint16 * 3 * 2)()
        culet.fp8_gemm_nt(*self.product.operands, d)
        for i in range(2):
            for j in range(3):
                self.d[i, j] = d[i][j]
        self.assertEqual(self.product.wrong(self.d), 0)
        self.assertEqual(len(self.d.elements()), 2 * GUARD + 6)


def fail(shape):
    product = Product(2, 3, 128)
    culet.fp8_gemm_nt(*product.operands, rows("u2", shape))


class Errors(unittest.TestCase):
    def test_pickle_and_copy(self):
        with self.assertRaises(culet.InvalidArgument) as caught:
            fail((3, 2))
        errors = (caught.exception, culet.Error("UNSUPPORTED", "no kernel"),
                  culet.InvalidArgument("too large", "OUT_OF_RANGE"))
        for error in errors:
            for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
                for again in (pickle.loads(pickle.dumps(error, protocol)), copy.copy(error)):
                    self.assertIs(type(again), type(error))
                    self.assertEqual((str(again), again.status, again.args),
                                     (str(error), error.status, error.args))

    def test_a_worker_fails(self):
        # Started afresh: a fork would inherit this process's threads' locks.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            for _ in range(2):
                with self.assertRaisesRegex(culet.InvalidArgument, "d has the shape .3, 2."):
                    pool.submit(fail, (3, 2)).result(timeout=100)
        with context.Pool(1) as pool:
            with self.assertRaisesRegex(culet.InvalidArgument, "d has the shape .3, 2."):
                pool.apply_async(fail, ((3, 2),)).get(timeout=100)


if __name__ == "__main__":
    unittest.main()
