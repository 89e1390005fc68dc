"""Arrays of other libraries through __dlpack__, of DLPack before and after its versions."""

import ctypes
from ctypes import POINTER, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p

from culet._library import InvalidArgument

CPU, CUDA, CUDA_HOST = 1, 2, 3
NO_SYNC = -1  # the stream of a consumer that orders its work by itself
_READ_ONLY, _COPIED = 1, 2  # what is written to a copy is lost
_MOST_AXES = 3
# (code, bits) -> the name that torch, numpy and ml_dtypes share.
_TYPES = {(1, 8): "uint8", (1, 16): "uint16", (2, 16): "float16", (2, 32): "float32",
          (2, 64): "float64", (4, 16): "bfloat16", (10, 8): "float8_e4m3fn"}


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32),
        ("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16), ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)), ("byte_offset", c_uint64),
    ]


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", c_uint32), ("minor", c_uint32), ("context", c_void_p), ("deleter", c_void_p),
        ("flags", c_uint64), ("tensor", _Tensor),
    ]


_name_of, _pointer_of = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
_name_of.restype, _name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
_pointer_of.restype, _pointer_of.argtypes = c_void_p, [ctypes.py_object, ctypes.c_char_p]


def read(name, array, stream):
    """(pointer, type's name, shape, strides in elements or None for C order, DLPack's device, its number,
    whether it may be written).

    stream: the consumer's, as a number; the producer has its work come first. None is the default
    stream. The capsule is read and given back: whoever calls keeps the array."""
    device, capsule = _capsule(name, array, stream)
    kind = _name_of(capsule) if type(capsule).__name__ == "PyCapsule" else None
    if kind == b"dltensor_versioned":
        whole = _Versioned.from_address(_pointer_of(capsule, kind))
        if whole.major != 1:
            raise InvalidArgument(f"{name}'s __dlpack__ has the version {whole.major}; culet reads 1")
        tensor, writable = whole.tensor, not whole.flags & (_READ_ONLY | _COPIED)
    elif kind == b"dltensor":
        tensor, writable = _Tensor.from_address(_pointer_of(capsule, kind)), True
    else:
        raise InvalidArgument(f"{name}'s __dlpack__ gives {kind or type(capsule).__name__!r} in the "
                              "place of a dltensor")
    dtype = _TYPES.get((tensor.code, tensor.bits), f"DLPack's type {tensor.code} of {tensor.bits} bits")
    if tensor.lanes != 1:
        dtype += f" in vectors of {tensor.lanes}"
    _check(name, tensor, device)
    shape = tuple(tensor.shape[:tensor.ndim]) if tensor.ndim else ()
    strides = tuple(tensor.strides[:tensor.ndim]) if tensor.ndim and tensor.strides else None
    return ((tensor.data or 0) + tensor.byte_offset, dtype, shape, strides, tensor.device_type,
            tensor.device_id, writable)


def _check(name, tensor, device):
    """Raises InvalidArgument for what a capsule must not say. What it says is read where it points, so this comes
    before."""
    kind, number = device
    if (tensor.device_type == CUDA) != (kind == CUDA) or tensor.device_type not in (CPU, CUDA, CUDA_HOST) or (
            kind == CUDA and tensor.device_id != number):
        raise InvalidArgument(f"{name}'s __dlpack__ is on DLPack's device {(tensor.device_type, tensor.device_id)}, "
                              f"but its __dlpack_device__ says {(int(kind), int(number))}")
    if not 0 <= tensor.ndim <= _MOST_AXES:
        raise InvalidArgument(f"{name} has {tensor.ndim} axes; give a matrix, or a batch of them")
    if tensor.ndim and not tensor.shape:
        raise InvalidArgument(f"{name}'s __dlpack__ has {tensor.ndim} axes, and no shape")
    if (tensor.data or 0) + tensor.byte_offset >= 2**64:
        raise InvalidArgument(f"{name}'s __dlpack__ has the byte_offset {tensor.byte_offset}, beyond all memory")


def _capsule(name, array, stream):
    """What __dlpack_device__ and __dlpack__ give."""
    options = {}
    try:
        kind, number = array.__dlpack_device__()
        if kind not in (CPU, CUDA, CUDA_HOST):
            raise InvalidArgument(f"{name} is on DLPack's device {int(kind)}; culet runs on cpu and cuda")
        if kind == CUDA:
            options["stream"] = stream or 1  # 0 is no stream of DLPack's
        try:
            return (kind, number), array.__dlpack__(**options, max_version=(1, 1))
        except TypeError:  # written before there were versions
            return (kind, number), array.__dlpack__(**options)
    except InvalidArgument:
        raise
    except Exception as error:  # of any package
        raise InvalidArgument(f"{name} is a {type(array).__name__} whose __dlpack__ gives no array: "
                              f"{error}") from None
