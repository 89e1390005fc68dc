"""culet: the matrix products of LLM inference, each with the fastest kernel there is here.

    import culet
    with culet.autotune(budget=30, persist=True):
        culet.fp8_gemm_nt((a, a_scales), (b, b_scales), d)   # measured, then launched
    culet.fp8_gemm_nt((a, a_scales), (b, b_scales), d)       # launched with the choice
    out = culet.gemm(x, weight, bias=bias)                   # BF16, F16, FP32, scaled FP8
    print(culet.LLM("Qwen3-0.6B").generate("Hello,"))        # a whole model

culet.nn has layers for PyTorch models, culet.deep_gemm DeepGEMM's functions.
"""

from ctypes import byref as _byref
from ctypes import c_int32 as _c_int32
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import List as _List
from typing import NamedTuple as _NamedTuple

from culet import _library
from culet._cache import load_cache, save_cache
from culet._checkpoint import quantize_checkpoint
from culet._gemm import explain, fp8_gemm_nt, gemm, pack, plan
from culet._grouped import Routes, grouped_gemm_nt, route
from culet._library import Error, InvalidArgument
from culet._observe import Coverage, coverage, set_log, set_tracing
from culet._operand import Packed
from culet._plan import Plan
from culet._quantize import quantize_fp8
from culet._tune_model import tune_model
from culet._tuning import Tuned, autotune

__all__ = ["Coverage", "Device", "Error", "InvalidArgument", "LLM", "Packed", "Plan", "Routes", "Tuned", "__version__",
           "autotune", "coverage", "devices", "doctor", "explain", "fp8_gemm_nt", "gemm", "grouped_gemm_nt", "load_cache",
           "pack", "plan", "quantize_checkpoint", "quantize_fp8", "route", "save_cache", "set_log", "set_tracing", "tune_model"]

__version__ = _library.LIBRARY.culet_version().decode()


if _TYPE_CHECKING:
    from culet._doctor import doctor
    from culet._llm import LLM


def __getattr__(name):
    # With their imports, when they are asked for.
    if name == "LLM":
        from culet._llm import LLM
        globals()["LLM"] = LLM
        return LLM
    if name == "doctor":
        from culet._doctor import doctor
        globals()["doctor"] = doctor
        return doctor
    raise AttributeError(f"module 'culet' has no attribute {name!r}")


class Device(_NamedTuple):
    """One device of the machine."""

    name: str          # for people
    device_class: str  # what decides speed; the key of the cache
    arch: int          # 0: the host; 900: compute capability 9.0
    ordinal: int       # CUDA device number; -1 for the host
    units: int         # threads in use, or multiprocessors
    cache_bytes: int
    memory_bytes: int


def devices() -> "_List[Device]":
    """The host first, then every CUDA device."""
    count = _c_int32()
    _library.check(_library.LIBRARY.culet_device_count(_byref(count)))
    found = []
    for index in range(count.value):
        device = _library.DeviceStruct()
        _library.check(_library.LIBRARY.culet_device_get(index, _byref(device)))
        found.append(Device(
            _library.text(device.name), _library.text(device.device_class), device.arch, device.ordinal,
            device.units, device.cache_bytes, device.memory_bytes))
    return found
