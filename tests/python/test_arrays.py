"""Arrays of other libraries: __dlpack__ before and after its versions, __cuda_array_interface__."""

import os
import types
import unittest
from unittest import mock

os.environ["CULET_CACHE"] = "off"

import culet
from culet import _dlpack, _driver, _operand
from host_arrays import to_bf16
from test_operands import NAN, dot, get, made, numbers

try:
    import numpy
except ImportError:
    numpy = None


class Dlpack:
    """An array of numpy's or torch's that shows nothing else."""

    def __init__(self, array, versions=True, device=None):
        self.array, self.versions, self.device, self.streams = array, versions, device, []

    def __dlpack_device__(self):
        return self.device or self.array.__dlpack_device__()

    def __dlpack__(self, *, stream=None, **options):
        self.streams.append(stream)
        if options and not self.versions:
            raise TypeError("no such argument")
        return self.array.__dlpack__(**options)


class OnDevice(Dlpack):
    """Says that it is where `device` is."""

    def __dlpack__(self, **options):
        capsule = super().__dlpack__(**options)
        kind = _dlpack._name_of(capsule)
        tensor = _dlpack._Tensor if kind == b"dltensor" else _dlpack._Versioned
        found = tensor.from_address(_dlpack._pointer_of(capsule, kind))
        found = getattr(found, "tensor", found)
        found.device_type, found.device_id = self.device
        return capsule


@unittest.skipUnless(numpy, "no numpy")
class DlpackArrays(unittest.TestCase):
    def setUp(self):
        pick = numpy.random.default_rng(1)
        self.a, self.b = (pick.integers(-2, 3, shape).astype(numpy.float32) for shape in ((3, 24), (5, 24)))
        self.out = numpy.full((3, 5), numpy.nan, numpy.float32)

    def test_exact(self):
        wanted = self.a @ self.b.T
        for versions in (True, False):
            for a, b in ((self.a, self.b), (numpy.asfortranarray(self.a), self.b),
                         (numpy.repeat(self.a, 2, 0)[::2], numpy.pad(self.b, ((0, 0), (0, 7)))[:, :24])):
                for _ in range(2):
                    self.out[:] = numpy.nan
                    culet.gemm(Dlpack(a, versions), Dlpack(b, versions), Dlpack(self.out, versions))
                    self.assertTrue((self.out == wanted).all())
        self.out[:] = numpy.nan
        culet.plan(Dlpack(self.a), self.b, Dlpack(self.out))()
        self.assertTrue((self.out == wanted).all())
        row = Dlpack(self.a[:1])  # strides that say nothing
        culet.gemm(row, self.b, self.out[:1], a_scale=Dlpack(numpy.array(2, numpy.float32)))
        self.assertTrue((self.out[:1] == 2 * wanted[:1]).all())

    def test_outputs_of_numpy(self):
        """What numpy has no type for is of ml_dtypes."""
        try:
            import ml_dtypes
        except ImportError as error:
            self.skipTest(f"no ml_dtypes: {error}")
        wanted = self.a @ self.b.T
        for kind in (ml_dtypes.bfloat16, numpy.float16, numpy.float32):
            out = culet.gemm(self.a.astype(kind), self.b.astype(kind))
            self.assertIs(out.dtype.type, kind)
            self.assertTrue((out.astype(numpy.float32) == wanted).all())
        out = culet.gemm(self.a, self.b.astype(ml_dtypes.bfloat16), out_dtype="float32")
        self.assertTrue((out == wanted).all())
        values, scales = culet.quantize_fp8(self.a, "row")
        self.assertIs(values.dtype.type, ml_dtypes.float8_e4m3fn)
        self.assertTrue((values.astype(numpy.float32) * scales == self.a).all())

    def test_torch(self):
        try:
            import torch
        except ImportError as error:
            self.skipTest(f"no torch: {error}")
        a, b = (torch.from_numpy(x).to(torch.bfloat16) for x in (self.a, self.b))
        out = torch.empty(3, 5, dtype=torch.bfloat16)
        culet.gemm(Dlpack(a), Dlpack(b), Dlpack(out))
        self.assertTrue(torch.equal(out, (a.float() @ b.float().t()).to(torch.bfloat16)))

    def test_an_offset_behind_the_pointer(self):
        """Where an array lies in a buffer of its own, some producers give the buffer and an offset."""
        wide = numpy.zeros((4, 24), numpy.float32)
        wide[1:] = self.a

        class Behind(Dlpack):
            def __dlpack__(self, **options):
                capsule = super().__dlpack__(**options)
                kind = _dlpack._name_of(capsule)
                tensor = _dlpack._Tensor if kind == b"dltensor" else _dlpack._Versioned
                found = tensor.from_address(_dlpack._pointer_of(capsule, kind))
                found = getattr(found, "tensor", found)
                found.byte_offset, found.shape[0] = 24 * 4, 3
                return capsule

        for versions in (True, False):
            culet.gemm(Behind(wide, versions), self.b, self.out)
            self.assertTrue((self.out == self.a @ self.b.T).all())

    def test_the_array_is_given_back(self):
        import sys
        before = sys.getrefcount(self.a)
        for _ in range(5):
            culet.gemm(Dlpack(self.a), self.b, self.out)
        self.assertLessEqual(sys.getrefcount(self.a), before + 1)

    def refused(self, words, **options):
        with self.assertRaisesRegex(culet.InvalidArgument, words):
            culet.gemm(**{"a": self.a, "b": self.b, "out": self.out, **options})

    def test_refused(self):
        read_only = self.out.copy()
        read_only.flags.writeable = False
        used = Dlpack(self.a)
        used.array = types.SimpleNamespace(__dlpack__=lambda **_: "no capsule",
                                           __dlpack_device__=lambda: (1, 0))
        self.refused("out is read-only", out=Dlpack(read_only))
        self.refused("a is on DLPack's device 10", a=Dlpack(self.a, device=(10, 0)))
        self.refused("a is a Dlpack whose __dlpack__ gives no array", a=Dlpack(3, device=(1, 0)))
        self.refused("gives 'str' in the place of a dltensor", a=used)
        self.refused("a holds float64", a=Dlpack(self.a.astype(numpy.float64)))
        self.refused("DLPack's type 0 of 32 bits", a=Dlpack(self.a.astype(numpy.int32)))
        self.refused("give an out", out=None, a=Dlpack(self.a))

    def test_streams_of_dlpack(self):
        for stream, wanted in ((None, 1), (0, 1), (7, 7), (_dlpack.NO_SYNC, -1)):
            array = OnDevice(self.a, device=(2, 3))
            _dlpack.read("a", array, stream)
            self.assertEqual(array.streams, [wanted])


class CudaArray:
    """Host memory that says that it is a GPU's."""

    def __init__(self, array, **interface):
        self.__cuda_array_interface__ = {**array.__array_interface__, **interface}


class CudaArrayInterface(unittest.TestCase):
    def setUp(self):
        patch = mock.patch.object(_driver, "place_of", lambda name, pointer: _operand.HOST)
        patch.start()
        self.addCleanup(patch.stop)

    def test_exact(self):
        (a, a_values), (b, b_values) = numbers((3, 24), 1), numbers((5, 24), 2)
        out = made((3, 5), fill=NAN)
        for _ in range(2):
            culet.gemm(CudaArray(a), CudaArray(b), CudaArray(out))
        self.assertEqual(get(out, (1, 2)), dot(a_values, b_values, (1,), (2,), 24))
        self.assertEqual(get(out, (2, 4)), dot(a_values, b_values, (2,), (4,), 24))

    def test_read_only(self):
        a, b, out = made((3, 24)), made((5, 24)), made((3, 5))
        with self.assertRaisesRegex(culet.InvalidArgument, "out is read-only"):
            culet.gemm(a, b, CudaArray(out, data=(out.pointer, True)))

    def test_streams(self):
        array = made((3, 24))
        with mock.patch.object(_driver, "wait") as wait:
            for mine, its, waits in ((5, None, 0), (5, 5, 0), (None, 1, 0), (0, 1, 0), (5, 6, 1), (None, 2, 1)):
                wait.reset_mock()
                _operand.operand("a", CudaArray(array, stream=its), stream=mine)
                self.assertEqual(wait.call_count, waits, (mine, its))
            _operand.operand("a", CudaArray(array, stream=6))
            self.assertEqual(wait.call_count, 1)  # nobody works on it
        a, b = CudaArray(array, stream=6), CudaArray(array)
        self.assertEqual(_operand.stream_of(0, (b, a)), 6)
        self.assertEqual(_operand.stream_of(_operand.HOST, (b, a)), None)
        self.assertEqual(_operand.stream_of(0, (b, None)), None)

    def test_nonsense(self):
        for wrong in (None, {}, 3, {"shape": (1,)}):
            with self.assertRaisesRegex(culet.InvalidArgument, "__cuda_array_interface__ gives no address"):
                culet.gemm(types.SimpleNamespace(__cuda_array_interface__=wrong), made((5, 24)), made((3, 5)))


class NoDriver(unittest.TestCase):
    def test_a_pointer_that_is_no_devices(self):
        array = made((3, 24))
        with self.assertRaisesRegex(culet.InvalidArgument, "a is at 0x.*no memory of a CUDA device"):
            culet.gemm(CudaArray(array), made((5, 24)), made((3, 5)))


@unittest.skipUnless(numpy, "no numpy")
class Quantised(unittest.TestCase):
    def test_into_given_arrays(self):
        try:
            import ml_dtypes
        except ImportError as error:
            self.skipTest(f"no ml_dtypes: {error}")
        x = numpy.random.default_rng(2).standard_normal((5, 200)).astype(numpy.float32)
        wanted = culet.quantize_fp8(x)
        out = numpy.zeros((5, 200), numpy.uint8), numpy.zeros((5, 2), numpy.float32)
        self.assertIs(culet.quantize_fp8(Dlpack(x), out=out), out)
        self.assertTrue((out[0] == wanted[0].view(numpy.uint8)).all() and (out[1] == wanted[1]).all())
        read_only = out[1].copy()
        read_only.flags.writeable = False
        for words, given in (("give a pair", 3), ("out's values has the shape", (out[0][:, :9], out[1])),
                             ("out's scales has the shape", (out[0], out[1][:, :1])),
                             ("out's scales holds uint8", (out[0], out[0])),
                             ("out's scales is read-only", (out[0], read_only))):
            with self.assertRaisesRegex(culet.InvalidArgument, words):
                culet.quantize_fp8(x, out=given)
        with self.assertRaisesRegex(culet.InvalidArgument, "give an out"):
            culet.quantize_fp8(Dlpack(x))
        self.assertEqual(ml_dtypes.float8_e4m3fn, wanted[0].dtype)


if __name__ == "__main__":
    unittest.main()
