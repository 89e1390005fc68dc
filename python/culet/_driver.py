"""The CUDA driver, for arrays that are not torch's: where a pointer lies, memory, the order of streams."""

import contextlib
import ctypes
import sys
import weakref
from ctypes import byref, c_int, c_uint64, c_void_p

from culet._library import Error, InvalidArgument

_ORDINAL = 9       # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
_NO_TIMING = 2     # CU_EVENT_DISABLE_TIMING
_RELAXED = 2       # CU_STREAM_CAPTURE_MODE_RELAXED
_library = None


def _call(name, *arguments):
    global _library
    if _library is None:
        try:
            library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise Error("NOT_FOUND", f"there is no CUDA driver: {error}") from None
        library.cuInit(0)
        _library = library  # not before: another thread would call a driver that is not ready
    status = getattr(_library, name)(*arguments)
    if status != 0:
        text = ctypes.c_char_p()
        _library.cuGetErrorName(status, byref(text))
        found = (text.value or b"").decode()
        raise Error("RESOURCE_EXHAUSTED" if "MEMORY" in found else "INTERNAL",
                    f"{name} failed: {found or status}")


def place_of(name, pointer):
    """The CUDA device's number of a pointer. InvalidArgument for one that is none's."""
    ordinal = c_int(-1)
    try:
        _call("cuPointerGetAttribute", byref(ordinal), _ORDINAL, c_uint64(pointer))
    except Error as error:
        raise InvalidArgument(f"{name} is at {pointer:#x}, which is no memory of a CUDA device "
                              f"({error}); give an array that is on one") from None
    return ordinal.value


@contextlib.contextmanager
def current(place):
    """Makes a device's primary context, which CUDA libraries share, the thread's."""
    device, context = c_int(), c_void_p()
    _call("cuDeviceGet", byref(device), place)
    _call("cuDevicePrimaryCtxRetain", byref(context), device)
    try:
        _call("cuCtxPushCurrent_v2", context)
        try:
            yield
        finally:
            _call("cuCtxPopCurrent_v2", byref(c_void_p()))
    finally:
        _call("cuDevicePrimaryCtxRelease_v2", device)


class _Memory:
    """Bytes of a device."""


@contextlib.contextmanager
def _beside_captures():
    """What other threads capture is not disturbed by the calls inside."""
    mode = c_int(_RELAXED)
    _call("cuThreadExchangeStreamCaptureMode", byref(mode))
    try:
        yield
    finally:
        _call("cuThreadExchangeStreamCaptureMode", byref(mode))


def allocate(place, count):
    """So many bytes, aligned to 256: what keeps them, and their address. Not from torch's allocator, whose
    memory may belong to the pool of a graph."""
    memory, pointer = _Memory(), c_uint64()
    size = ctypes.c_size_t(max(count, 1))
    with current(place), _beside_captures():
        try:
            _call("cuMemAlloc_v2", byref(pointer), size)
        except Error as error:
            torch = sys.modules.get("torch")
            if error.status != "RESOURCE_EXHAUSTED" or torch is None:
                raise
            torch.cuda.empty_cache()  # it may hold all that it does not use
            _call("cuMemAlloc_v2", byref(pointer), size)
    weakref.finalize(memory, _free, place, pointer.value).atexit = False
    return memory, pointer.value


def _free(place, pointer):
    with current(place), _beside_captures():
        _call("cuMemFree_v2", c_uint64(pointer))


def synchronize(place, stream):
    """Waits for a stream."""
    with current(place):
        _call("cuStreamSynchronize", c_void_p(stream))


def wait(place, stream, other):
    """What comes on `stream` follows what is on another one until now."""
    event = c_void_p()
    with current(place):
        _call("cuEventCreate", byref(event), _NO_TIMING)
        try:
            _call("cuEventRecord", event, c_void_p(other))
            _call("cuStreamWaitEvent", c_void_p(stream), event, 0)
        finally:
            _call("cuEventDestroy_v2", event)  # once it has passed
