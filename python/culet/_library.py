"""Finds libculet and declares culet.h to ctypes."""

import ctypes
import os
import sys
from ctypes import POINTER, byref, c_char, c_char_p, c_double, c_float, c_int32, c_int64
from ctypes import c_size_t, c_uint64, c_void_p
from pathlib import Path


class Error(RuntimeError):
    """culet refused or failed; `status` is the reason in one word, "UNSUPPORTED" for example."""

    def __init__(self, status, message):
        super().__init__(message.encode(errors="backslashreplace").decode())  # it may quote a path of any bytes
        self.status = status

    def __reduce__(self):  # RuntimeError's own would call the class with the message alone
        return type(self), (self.status, str(self))


class InvalidArgument(Error, ValueError):
    """An argument is wrong; the message names it, its value and the way out."""

    def __init__(self, message, status="INVALID_ARGUMENT"):
        super().__init__(status, message)

    def __reduce__(self):
        return type(self), (str(self), self.status)


OK, OUT_OF_RANGE, RESOURCE_EXHAUSTED, INVALID_ARGUMENT = 0, 3, 4, 1
FLOAT32, FLOAT16, BFLOAT16, FLOAT8_E4M3, UINT4 = 1, 2, 3, 4, 8
COL_MAJOR, ROW_MAJOR = 0, 1
QUANT_K, QUANT_B, QUANT_TENSOR, QUANT_ROW = 1, 2, 3, 4
ACCUMULATE_PROMOTED, ACCUMULATE_FAST, ACCUMULATE_FULL = 0, 1, 2
DETERMINISM_FAST, DETERMINISM_BATCH_INVARIANT = 0, 2
EPILOGUE_NONE, EPILOGUE_GATED_SILU, EPILOGUE_GATED_SILU_QUANT = 0, 1, 2
GATE_EIGHTS, GATE_HALVES = 0, 1
PACK_PANELS64 = 1


class _Versioned(ctypes.Structure):
    """A struct that says its own size."""

    def __init__(self, **fields):
        super().__init__(struct_size=ctypes.sizeof(type(self)), **fields)


class Matrix(ctypes.Structure):
    _fields_ = [
        ("type", c_int32), ("order", c_int32), ("rows", c_int32), ("cols", c_int32),
        ("ld", c_int64), ("pack", c_int32), ("num", c_int32),
        ("offsets", c_void_p), ("idxs", c_void_p), ("batch_stride", c_int64),
        ("reserved", c_uint64 * 3),
    ]


class Problem(_Versioned):
    _fields_ = [
        ("struct_size", c_size_t),
        ("a", Matrix), ("u", Matrix), ("b", Matrix), ("v", Matrix), ("c", Matrix), ("d", Matrix),
        ("A", c_void_p), ("U", c_void_p), ("B", c_void_p), ("V", c_void_p), ("C", c_void_p),
        ("D", c_void_p),
        ("beta", c_float), ("quant_a", c_int32), ("group_a", c_int32), ("quant_b", c_int32),
        ("group_b", c_int32), ("batch_dim", c_int32), ("bias", c_void_p), ("bias_type", c_int32),
        ("bias_axis", c_int32), ("pdl", c_int32), ("sm_budget", c_int32),
        ("accumulate", c_int32), ("determinism", c_int32), ("epilogue", c_int32),
        ("gate_order", c_int32), ("zero_a", c_void_p), ("zero_b", c_void_p),
        ("zero_a_type", c_int32), ("zero_b_type", c_int32), ("w", Matrix), ("W", c_void_p),
        ("quant_d", c_int32), ("group_d", c_int32),
    ]


class Grouped(_Versioned):
    _fields_ = [
        ("struct_size", c_size_t), ("groups", c_int32), ("rows", c_int32), ("a_rows", c_int32),
        ("n", c_int32), ("k", c_int32), ("type", c_int32), ("d_type", c_int32), ("epilogue", c_int32),
        ("A", c_void_p), ("lda", c_int64), ("U", c_void_p), ("u_row", c_int64), ("u_block", c_int64),
        ("B", c_void_p), ("V", c_void_p), ("starts", c_void_p), ("counts", c_void_p),
        ("index", c_void_p), ("bias", c_void_p), ("bias_type", c_int32), ("pdl", c_int32),
        ("D", c_void_p), ("ldd", c_int64), ("expected_tokens", c_int32), ("expected_active", c_int32),
        ("expected_experts", c_int32), ("sm_budget", c_int32),
    ]


class DeviceStruct(_Versioned):
    _fields_ = [
        ("struct_size", c_size_t), ("name", c_char * 128), ("device_class", c_char * 128),
        ("arch", c_int32), ("ordinal", c_int32), ("units", c_int32),
        ("cache_bytes", c_uint64), ("memory_bytes", c_uint64),
    ]


class EngineOptions(_Versioned):
    _fields_ = [("struct_size", c_size_t), ("device", c_char_p), ("cache_path", c_char_p),
                ("providers", c_char_p), ("record", c_char_p)]


class TuneOptions(_Versioned):
    _fields_ = [
        ("struct_size", c_size_t), ("budget_s", c_double), ("rounds", c_int32),
        ("max_candidates", c_int32), ("force", c_int32), ("stream", c_void_p),
        ("stop", POINTER(c_int32)),
    ]


class Choice(_Versioned):
    _fields_ = [
        ("struct_size", c_size_t), ("kernel", c_char * 128), ("swizzle", c_int32),
        ("splits", c_int32), ("measured", c_int32), ("measurements", c_int32),
        ("time_us", c_double), ("baseline_us", c_double), ("serial", c_int32),
        ("variant", c_int32),
    ]


class CacheReport(_Versioned):
    _fields_ = [("struct_size", c_size_t)] + [(name, c_int32) for name in (
        "used", "outdated", "other_device", "unknown_kernel", "unavailable", "other_provider",
        "infeasible", "other_version", "damaged")]


class Coverage(_Versioned):
    _fields_ = [("struct_size", c_size_t), ("problems", c_int32), ("measured", c_int32)]


class WorkspaceSize(_Versioned):
    _fields_ = [
        ("struct_size", c_size_t), ("barriers", c_uint64), ("partials", c_uint64),
        ("tensormaps", c_uint64),
    ]


class LaunchArgs(_Versioned):
    _fields_ = [
        ("struct_size", c_size_t), ("plan", c_void_p), ("A", c_void_p), ("U", c_void_p), ("C", c_void_p),
        ("D", c_void_p), ("alpha", c_float), ("beta", c_float), ("workspace", c_void_p),
        ("stream", c_void_p),
    ]


class ModelOptions(_Versioned):
    _fields_ = [("struct_size", c_size_t), ("random_weights", c_int32), ("reserved", c_int32),
                ("seed", c_uint64), ("rank_program", c_char_p), ("ranks", c_int32), ("exchange", c_int32)]


class ModelInfo(_Versioned):
    _fields_ = [
        ("struct_size", c_size_t), ("architecture", c_char * 64), ("model_type", c_char * 64),
        ("vocab", c_int32), ("hidden", c_int32), ("layers", c_int32), ("heads", c_int32),
        ("kv_heads", c_int32), ("head_dim", c_int32), ("max_position", c_int32),
        ("end_tokens", c_int32), ("weight_bytes", c_uint64), ("bytes_a_token", c_uint64),
    ]


GATE = ctypes.CFUNCTYPE(c_int32, c_void_p)


class SessionOptions(_Versioned):
    _fields_ = [
        ("struct_size", c_size_t), ("max_sequences", c_int32), ("max_context", c_int32),
        ("max_step_tokens", c_int32), ("block_size", c_int32), ("cache_blocks", c_int32),
        ("cache_type", c_int32), ("dispatch", c_int32), ("policy", c_int32),
        ("determinism", c_int32), ("reserved", c_int32), ("stop", POINTER(c_int32)),
        ("gate", GATE), ("gate_context", c_void_p), ("stream", c_void_p),
    ]


class SessionInfo(_Versioned):
    _fields_ = [
        ("struct_size", c_size_t), ("max_sequences", c_int32), ("max_context", c_int32),
        ("max_step_tokens", c_int32), ("block_size", c_int32), ("cache_blocks", c_int32),
        ("cache_type", c_int32), ("cache_bytes", c_uint64), ("scratch_bytes", c_uint64),
    ]


class Batch(_Versioned):
    _fields_ = [
        ("struct_size", c_size_t), ("count", c_int32), ("reserved", c_int32),
        ("sequences", POINTER(c_int32)), ("lengths", POINTER(c_int32)),
        ("tokens", POINTER(c_int32)),
    ]


class Outputs(_Versioned):
    _fields_ = [
        ("struct_size", c_size_t), ("next", POINTER(c_int32)), ("logits", POINTER(c_float)),
        ("all_logits", POINTER(c_float)), ("hidden", POINTER(c_float)),
    ]


ON_LOG = ctypes.CFUNCTYPE(None, c_void_p, c_int32, c_char_p)
ON_TOKEN = ctypes.CFUNCTYPE(c_int32, c_void_p, c_int32, c_int32)


class DecodeOptions(_Versioned):
    _fields_ = [
        ("struct_size", c_size_t), ("steps", c_int32), ("end_token_count", c_int32),
        ("end_tokens", POINTER(c_int32)), ("on_token", ON_TOKEN), ("context", c_void_p),
    ]


class Sampling(_Versioned):
    _fields_ = [("struct_size", c_size_t), ("temperature", c_float), ("top_p", c_float),
                ("min_p", c_float), ("top_k", c_int32), ("seed", c_uint64)]


TEXT = [c_char_p, c_size_t, POINTER(c_size_t)]  # where a text goes, how much, how much there is

# Function -> result and arguments. Those with a status are wrapped by `check`.
SIGNATURES = {
    "culet_status_name": (c_char_p, [c_int32]),
    "culet_last_error": (c_char_p, []),
    "culet_version": (c_char_p, []),
    "culet_set_threads": (c_int32, [c_int32]),
    "culet_threads": (c_int32, [POINTER(c_int32)]),
    "culet_devices_json": (c_int32, TEXT),
    "culet_products_json": (c_int32, [c_char_p, *TEXT]),
    "culet_gguf_json": (c_int32, [c_char_p, *TEXT]),
    "culet_quantize_checkpoint": (
        c_int32, [c_char_p, c_char_p, c_char_p, POINTER(c_char_p), c_int32, POINTER(c_int32)]),
    "culet_device_count": (c_int32, [POINTER(c_int32)]),
    "culet_device_get": (c_int32, [c_int32, POINTER(DeviceStruct)]),
    "culet_engine_create": (c_int32, [POINTER(EngineOptions), POINTER(c_void_p)]),
    "culet_engine_destroy": (None, [c_void_p]),
    "culet_engine_device": (c_int32, [c_void_p, POINTER(DeviceStruct)]),
    "culet_engine_cache_note": (c_char_p, [c_void_p]),
    "culet_engine_save": (c_int32, [c_void_p, c_char_p]),
    "culet_engine_check_save": (c_int32, [c_void_p, c_char_p]),
    "culet_engine_coverage": (c_int32, [c_void_p, POINTER(Coverage)]),
    "culet_set_log": (c_int32, [ON_LOG, c_void_p, c_int32]),
    "culet_set_tracing": (c_int32, [c_int32]),
    "culet_explain_lost_files": (c_int32, [c_int32]),
    "culet_doctor_json": (c_int32, [c_char_p, *TEXT]),
    "culet_engine_load": (c_int32, [c_void_p, c_char_p, POINTER(CacheReport)]),
    "culet_kernels_json": (c_int32, [c_void_p, *TEXT]),
    "culet_describe_json": (c_int32, [c_void_p, POINTER(Problem), *TEXT]),
    "culet_explain_json": (c_int32, [c_void_p, POINTER(Problem), *TEXT]),
    "culet_packed_bytes": (c_int32, [c_void_p, POINTER(Matrix), c_int32, POINTER(c_uint64)]),
    "culet_pack": (
        c_int32,
        [c_void_p, c_void_p, POINTER(Matrix), c_int32, c_void_p, c_uint64, c_void_p,
         POINTER(Matrix)]),
    "culet_unpack": (
        c_int32, [c_void_p, c_void_p, POINTER(Matrix), c_void_p, POINTER(Matrix)]),
    "culet_quantize": (
        c_int32,
        [c_void_p, c_int32, c_int32, c_void_p, POINTER(Matrix), c_void_p, POINTER(Matrix),
         c_void_p, POINTER(Matrix), c_void_p]),
    "culet_tune": (c_int32, [c_void_p, POINTER(Problem), POINTER(TuneOptions), POINTER(Choice)]),
    "culet_explain": (c_int32, [c_void_p, POINTER(Problem), *TEXT]),
    "culet_plan_create": (c_int32, [c_void_p, POINTER(Problem), POINTER(c_void_p)]),
    "culet_plan_destroy": (None, [c_void_p]),
    "culet_plan_choice": (c_int32, [c_void_p, POINTER(Choice)]),
    "culet_plan_workspace": (c_int32, [c_void_p, POINTER(WorkspaceSize)]),
    "culet_workspace_bytes": (c_int32, [POINTER(WorkspaceSize), POINTER(c_uint64)]),
    "culet_workspace_create": (
        c_int32,
        [c_void_p, POINTER(WorkspaceSize), c_void_p, c_uint64, c_void_p, POINTER(c_void_p)]),
    "culet_workspace_destroy": (None, [c_void_p]),
    "culet_grouped_gemm": (c_int32, [c_void_p, POINTER(Grouped), c_void_p]),
    "culet_launch_with": (c_int32, [c_void_p]),
    "culet_capture_id": (c_int32, [c_void_p, c_void_p, POINTER(c_uint64)]),
    "culet_model_load": (
        c_int32, [c_void_p, c_char_p, POINTER(ModelOptions), POINTER(c_void_p)]),
    "culet_model_destroy": (None, [c_void_p]),
    "culet_model_get_info": (c_int32, [c_void_p, POINTER(ModelInfo)]),
    "culet_model_end_tokens": (
        c_int32, [c_void_p, POINTER(c_int32), c_int32, POINTER(c_int32)]),
    "culet_model_warnings": (c_int32, [c_void_p, *TEXT]),
    "culet_session_create": (c_int32, [c_void_p, POINTER(SessionOptions), POINTER(c_void_p)]),
    "culet_session_destroy": (None, [c_void_p]),
    "culet_session_get_info": (c_int32, [c_void_p, POINTER(SessionInfo)]),
    "culet_session_plan": (c_int32, [c_void_p]),
    "culet_session_add": (c_int32, [c_void_p, POINTER(c_int32)]),
    "culet_session_remove": (c_int32, [c_void_p, c_int32]),
    "culet_session_truncate": (c_int32, [c_void_p, c_int32, c_int32]),
    "culet_session_sampling": (c_int32, [c_void_p, c_int32, POINTER(Sampling)]),
    "culet_session_sequence": (
        c_int32, [c_void_p, c_int32, POINTER(c_int32), POINTER(c_int32)]),
    "culet_session_step": (c_int32, [c_void_p, POINTER(Batch), POINTER(Outputs)]),
    "culet_session_prefill": (c_int32, [c_void_p, POINTER(Batch), POINTER(Outputs)]),
    "culet_session_decode": (
        c_int32,
        [c_void_p, POINTER(Batch), POINTER(DecodeOptions), POINTER(c_int32), POINTER(c_int32),
         POINTER(c_int32)]),
    "culet_sample": (
        c_int32,
        [POINTER(c_float), c_int32, POINTER(Sampling), POINTER(c_uint64), POINTER(c_int32)]),
}


def beside(name):
    """The path of a file of the package, or None. An editable installation has two folders: this
    one, and that of what was built."""
    package = sys.modules[__package__]
    for folder in dict.fromkeys([os.path.dirname(__file__), *package.__path__]):
        if os.path.isfile(path := os.path.join(folder, name)):
            return path
    return None


def _path():
    """CULET_LIBRARY, else the library that the wheel put beside this file."""
    if chosen := os.environ.get("CULET_LIBRARY"):
        if not Path(chosen).is_file():
            raise ImportError(
                f"CULET_LIBRARY is {chosen}, which is no file; name libculet.so, or unset it")
        return chosen
    if path := beside("libculet.so.0") or beside("libculet.so"):
        return path
    raise ImportError(
        f"there is no libculet.so beside {__file__}; install culet with pip, or set "
        "CULET_LIBRARY to a libculet.so that you built")


def _load():
    path = _path()
    try:
        library = ctypes.CDLL(path)
        for name, (result, arguments) in SIGNATURES.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise ImportError(f"{path} cannot be used: {error}") from error
    return library


LIBRARY = _load()


def text(found):
    """Text of the library's. It may quote names of files, which can be of any bytes."""
    return found.decode(errors="backslashreplace")


def check(status):
    """Raises what a call's status says; nothing when it is 0."""
    if status == OK:
        return
    message = text(LIBRARY.culet_last_error())
    name = text(LIBRARY.culet_status_name(status))
    if status in (INVALID_ARGUMENT, OUT_OF_RANGE):
        raise InvalidArgument(message, name)
    raise Error(name, message)


def path_bytes(name, path):
    """A path as the library takes it. Raises InvalidArgument for what is none."""
    try:
        found = os.fsencode(path)
    except (TypeError, UnicodeEncodeError):
        raise InvalidArgument(f"{name} is {shown(path)}; give the path as text") from None
    if b"\0" in found:
        raise InvalidArgument(f"{name} is {shown(path)}, which has a zero byte within; no file's name has")
    return found


def shown(value):
    """repr() of an argument for an error: integers of many digits have none, some objects raise."""
    if isinstance(value, int) and value.bit_length() > 128:
        return f"an integer of {value.bit_length()} bits"
    try:
        found = repr(value)
    except Exception:
        return f"a {type(value).__name__}"
    return found if len(found) <= 400 else found[:400] + "..."


def no_pickle(self, protocol=None):
    """__reduce_ex__ of what stands for memory and handles of this process; copy asks it, too."""
    raise Error("UNSUPPORTED", f"a {type(self).__name__} of culet belongs to the process that made it, and is not "
                "pickled or copied; make it anew where it is needed, from what it was made of")


def create(function, *arguments):
    """The handle that a culet_*_create makes through its last argument."""
    handle = c_void_p()
    check(function(*arguments, byref(handle)))
    return handle.value
