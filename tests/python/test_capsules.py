"""Capsules of DLPack, and array interfaces, that lie: each field of a capsule that ctypes makes. What no array says
is an InvalidArgument, and nothing is read where a null pointer, or too long a shape, says."""

import ctypes
import os
import types
import unittest

os.environ["CULET_CACHE"] = "off"

import culet
from culet import _dlpack
from host_arrays import rows

_new = ctypes.pythonapi.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_NAMES = {False: b"dltensor", True: b"dltensor_versioned"}  # must live as long as the capsules


class Capsule:
    """The memory of an FP32 matrix by a capsule with fields of its own."""

    def __init__(self, array, versioned=True, device=(1, 0), name=None, **fields):
        self.array, self.device, self.name = array, device, name or _NAMES[versioned]
        self.shape = (ctypes.c_int64 * 3)(*array.shape, 1)
        self.strides = (ctypes.c_int64 * 3)(*array.strides, 1)
        self.whole = _dlpack._Versioned(major=1, minor=1) if versioned else _dlpack._Tensor()
        self.tensor = self.whole.tensor if versioned else self.whole
        given = {"data": array.pointer, "device_type": 1, "ndim": 2, "code": 2, "bits": 32, "lanes": 1,
                 "shape": self.shape, "strides": self.strides, **fields}
        for field, value in given.items():
            pointer = isinstance(value, ctypes.Array)
            target = self.whole if field in ("major", "flags") else self.tensor
            setattr(target, field, ctypes.cast(value, ctypes.POINTER(ctypes.c_int64)) if pointer else value)

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **options):
        return _new(ctypes.addressof(self.whole), self.name, None)


def shape(*extents):
    return (ctypes.c_int64 * len(extents))(*extents)


class Capsules(unittest.TestCase):
    def setUp(self):
        self.a, self.b, self.out = (rows("f4", (m, n), fill=x) for m, n, x in ((3, 4, 1), (5, 4, 2), (3, 5, -1)))

    def refused(self, words, at="a", **fields):
        for versioned in (True, False):
            if not versioned and fields.keys() & {"major", "flags"}:
                continue
            before = self.out.elements()
            with self.subTest(fields=fields, versioned=versioned), self.assertRaisesRegex(culet.InvalidArgument, words):
                operands = {"a": self.a, "b": self.b, "out": self.out}
                culet.gemm(**{**operands, at: Capsule(operands[at], versioned, **fields)})
            self.assertEqual(self.out.elements(), before)

    def test_the_truth(self):
        for versioned in (True, False):
            for fields in ({}, {"strides": None}, {"device_id": 7}, {"device": (3, 0)}):
                out = rows("f4", (3, 5), fill=-1)
                culet.gemm(Capsule(self.a, versioned, **fields), self.b, Capsule(out, versioned))
                self.assertEqual(out[0, 0], 8)

    def test_shapes(self):
        self.refused("a's __dlpack__ has 2 axes, and no shape", shape=None)
        for ndim in (-1, 4, 2**31 - 1, -2**31):
            self.refused(f"a has {ndim} axes", ndim=ndim)
        for ndim in (0, 1):
            self.refused("a has the shape .*give a matrix", ndim=ndim)
        for extents in ((-3, 4), (3, -4), (-2**63, 4)):
            self.refused("no axis is shorter than 0", shape=shape(*extents))
        for extents in ((2**63 - 1, 4), (3, 2**62), (2**31, 4)):
            self.refused("2147483647 rows|has the shape", shape=shape(*extents))
        self.refused("b has the shape", at="a", shape=shape(3, 9))

    def test_strides(self):
        for strides in ((0, 1), (-4, 1), (3, 1), (-2**63, 1)):
            self.refused("overlap", strides=shape(*strides))
        for strides in ((2**62, 1), (2**63 - 1, 1)):
            self.refused("bytes do not fit", strides=shape(*strides))
        for strides in ((4, 2), (4, -1), (5, 0)):
            self.refused("must be contiguous", strides=shape(*strides))

    def test_memory(self):
        self.refused("a of shape .* has no memory: its address is null", data=None)
        self.refused("out of shape .* has no memory: its address is null", at="out", data=None)
        self.refused("byte_offset .* beyond all memory", byte_offset=2**64 - 1)
        self.refused("not a multiple of 4 bytes", byte_offset=1)

    def test_types(self):
        self.refused("a holds DLPack's type 0 of 32 bits", code=0)
        self.refused("a holds DLPack's type 99 of 32 bits", code=99)
        self.refused("a holds DLPack's type 2 of 0 bits", bits=0)
        for lanes in (0, 2, 65535):
            self.refused(f"in vectors of {lanes}", lanes=lanes)

    def test_devices(self):
        self.refused(r"a's __dlpack__ is on DLPack's device \(2, 0\), but its __dlpack_device__ says \(1, 0\)",
                     device_type=2)
        self.refused("but its __dlpack_device__ says", device=(2, 0))
        self.refused("but its __dlpack_device__ says", device=(2, 0), device_type=2, device_id=1)
        self.refused("but its __dlpack_device__ says", device_type=-1)
        self.refused("a is on DLPack's device 99", device=(99, 0))
        for device in (None, 1, (1,), ("cpu", 0), "12"):
            self.refused("gives no array|DLPack's device", device=device)
        self.refused("no memory of a CUDA device", device=(2, 0), device_type=2)  # host memory that says otherwise

    def test_versions(self):
        self.refused("has the version 2; culet reads 1", major=2)
        self.refused("has the version 0; culet reads 1", major=0)
        self.refused("out is read-only", at="out", flags=1)
        self.refused("out is read-only", at="out", flags=2)  # a copy, in which the result would be lost
        self.refused("in the place of a dltensor", name=b"used_dltensor")

    def test_other_exceptions(self):
        def fail(*_, **__):
            raise ArithmeticError("no such thing")

        for array in (types.SimpleNamespace(__dlpack_device__=fail, __dlpack__=fail),
                      types.SimpleNamespace(__dlpack_device__=lambda: (1, 0), __dlpack__=fail)):
            with self.assertRaisesRegex(culet.InvalidArgument, "gives no array: no such thing"):
                culet.gemm(array, self.b, self.out)

    def test_interfaces(self):
        good = self.a.__array_interface__
        for words, change in (("its address is null", {"data": (0, False)}), ("its address is null", {"data": (None, False)}),
                              ("where no memory is", {"data": (-8, False)}), ("where no memory is", {"data": (2**64, False)}),
                              ("no axis is shorter", {"shape": (-3, 4)})):
            with self.subTest(change=change), self.assertRaisesRegex(culet.InvalidArgument, words):
                culet.gemm(types.SimpleNamespace(__array_interface__=good | change, dtype="float32"), self.b, self.out)


if __name__ == "__main__":
    unittest.main()
