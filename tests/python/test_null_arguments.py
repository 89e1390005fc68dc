"""Null in the place of each pointer of each function of the C interface: a sentence that names it, or as the
header has it, and never a crash."""

import ctypes
import unittest
from ctypes import byref, c_char, c_float, c_int32, c_uint64, c_void_p
from pathlib import Path

import culet
from culet import _library
from culet._library import COL_MAJOR, FLOAT32, LIBRARY, ROW_MAJOR, SIGNATURES, Matrix

ADDER = str(Path(__file__).resolve().parents[2] / "examples/adder").encode()
M, N, K = 2, 64, 16
MAY_GET_NOTHING = {"culet_set_threads", "culet_devices_json", "culet_set_log", "culet_set_tracing",
                   "culet_doctor_json", "culet_explain_lost_files"}


def made(function, *arguments):
    return c_void_p(_library.create(function, *arguments))


class Objects:
    """What the functions take, all valid."""

    def __init__(self):
        self.engine = made(LIBRARY.culet_engine_create, byref(_library.EngineOptions(cache_path=b"off")))
        self.a, self.b, self.d, self.packed = ((c_float * count)() for count in (M * K, N * K, M * N, N * K))
        self.of_a = Matrix(type=FLOAT32, order=ROW_MAJOR, rows=M, cols=K, ld=K)
        self.of_b = Matrix(type=FLOAT32, order=COL_MAJOR, rows=K, cols=N, ld=K)
        self.problem = _library.Problem(
            a=self.of_a, b=self.of_b, d=Matrix(type=FLOAT32, order=ROW_MAJOR, rows=M, cols=N, ld=N),
            A=ctypes.addressof(self.a), B=ctypes.addressof(self.b), D=ctypes.addressof(self.d))
        self.plan = made(LIBRARY.culet_plan_create, self.engine, byref(self.problem))
        self.size, self.room = _library.WorkspaceSize(), ctypes.create_string_buffer(4096)
        self.model = made(LIBRARY.culet_model_load, self.engine, ADDER, None)
        self.session = made(LIBRARY.culet_session_create, self.model, None)
        self.sequence, self.token, self.text = c_int32(), (c_int32 * 8)(49), (c_char * 16)()
        _library.check(LIBRARY.culet_session_add(self.session, byref(self.sequence)))
        self.batch = _library.Batch(count=1, sequences=ctypes.pointer(self.sequence), tokens=self.token)
        self.sampling = _library.Sampling(temperature=1)

    def destroy(self):
        LIBRARY.culet_session_destroy(self.session)
        LIBRARY.culet_model_destroy(self.model)
        LIBRARY.culet_plan_destroy(self.plan)
        LIBRARY.culet_engine_destroy(self.engine)


def calls(o):
    """Function -> its arguments, and the places where null is refused."""
    number, bytes_, device = c_int32(), c_uint64(), _library.DeviceStruct()
    packed, choice = Matrix(), _library.Choice()
    values, scales = (ctypes.c_uint8 * (M * K))(), (c_float * M)()
    of_values = Matrix(type=_library.FLOAT8_E4M3, order=ROW_MAJOR, rows=M, cols=K, ld=K)
    of_scales = Matrix(type=FLOAT32, order=ROW_MAJOR, rows=M, cols=1, ld=1)
    text = [o.text, len(o.text), None]
    LIBRARY.culet_packed_bytes(o.engine, byref(o.of_b), _library.PACK_PANELS64, byref(bytes_))
    _library.check(LIBRARY.culet_pack(o.engine, o.b, byref(o.of_b), _library.PACK_PANELS64, o.packed, bytes_, None,
                                      byref(packed)))
    return {
        "culet_threads": ([byref(number)], [0]),
        "culet_devices_json": (text, [0]), "culet_kernels_json": ([o.engine, *text], [0, 1]),
        "culet_products_json": ([ADDER, *text], [0, 1]), "culet_gguf_json": ([ADDER, *text], [0, 1]),
        "culet_quantize_checkpoint": (
            [ADDER, b"/dev/null/none", b"u4", (ctypes.c_char_p * 1)(b"o_proj"), 1, None], [0, 1, 2, 3]),
        "culet_device_count": ([byref(number)], [0]), "culet_device_get": ([0, byref(device)], [1]),
        "culet_engine_create": ([None, byref(c_void_p())], [1]),
        "culet_engine_device": ([o.engine, byref(device)], [0, 1]),
        "culet_engine_save": ([o.engine, None], [0]), "culet_engine_check_save": ([o.engine, None], [0]),
        "culet_engine_coverage": ([o.engine, byref(_library.Coverage())], [0, 1]),
        "culet_engine_load": ([o.engine, b"/dev/null/none", None], [0, 1]),
        "culet_describe_json": ([o.engine, byref(o.problem), *text], [0, 1, 2]),
        "culet_explain_json": ([o.engine, byref(o.problem), *text], [0, 1, 2]),
        "culet_explain": ([o.engine, byref(o.problem), *text], [0, 1, 2]),
        "culet_packed_bytes": ([o.engine, byref(o.of_b), _library.PACK_PANELS64, byref(bytes_)], [0, 1, 3]),
        "culet_pack": ([o.engine, o.b, byref(o.of_b), _library.PACK_PANELS64, o.packed, bytes_, None,
                        byref(packed)], [0, 1, 2, 4, 7]),
        "culet_unpack": ([o.engine, o.packed, byref(packed), o.b, byref(o.of_b)], [0, 1, 2, 3, 4]),
        "culet_quantize": ([o.engine, _library.QUANT_ROW, 0, o.a, byref(o.of_a), values, byref(of_values), scales,
                            byref(of_scales), None], [0, 3, 4, 5, 6, 7, 8]),
        "culet_tune": ([o.engine, byref(o.problem), None, None], [0, 1]),
        "culet_plan_create": ([o.engine, byref(o.problem), byref(c_void_p())], [0, 1, 2]),
        "culet_plan_choice": ([o.plan, byref(choice)], [0, 1]),
        "culet_plan_workspace": ([o.plan, byref(o.size)], [0, 1]),
        "culet_workspace_bytes": ([byref(o.size), byref(bytes_)], [0, 1]),
        "culet_workspace_create": ([o.engine, byref(o.size), o.room, len(o.room), None, byref(c_void_p())], [0, 1, 5]),
        "culet_launch_with": ([byref(_library.LaunchArgs(plan=o.plan))], [0]),
        "culet_grouped_gemm": ([o.engine, byref(_library.Grouped(
            groups=1, n=1, k=1, type=FLOAT32, d_type=FLOAT32)), None], [0, 1]),
        "culet_capture_id": ([o.engine, None, byref(bytes_)], [0, 2]),
        "culet_model_load": ([o.engine, ADDER, None, byref(c_void_p())], [0, 1, 3]),
        "culet_model_get_info": ([o.model, byref(_library.ModelInfo())], [0, 1]),
        "culet_model_end_tokens": ([o.model, o.token, 8, byref(number)], [0, 1]),
        "culet_model_warnings": ([o.model, None, 0, None], [0]),
        "culet_session_create": ([o.model, None, byref(c_void_p())], [0, 2]),
        "culet_session_get_info": ([o.session, byref(_library.SessionInfo())], [0, 1]),
        "culet_session_plan": ([o.session], [0]),
        "culet_session_add": ([o.session, byref(number)], [0, 1]),
        "culet_session_remove": ([o.session, 0], [0]), "culet_session_truncate": ([o.session, 0, 0], [0]),
        "culet_session_sampling": ([o.session, 0, byref(o.sampling)], [0]),
        "culet_session_sequence": ([o.session, 0, None, None], [0]),
        "culet_session_step": ([o.session, byref(o.batch), None], [0, 1]),
        "culet_session_prefill": ([o.session, byref(o.batch), None], [0, 1]),
        "culet_session_decode": ([o.session, byref(o.batch), byref(_library.DecodeOptions(steps=1)), o.token,
                                  byref(number), None], [0, 1, 2]),
        "culet_sample": ([o.d, N, byref(o.sampling), byref(bytes_), byref(number)], [0, 3, 4]),
    }


class Null(unittest.TestCase):
    def setUp(self):
        self.objects = Objects()
        self.addCleanup(self.objects.destroy)

    def test_each_pointer(self):
        for name, (arguments, refused) in calls(self.objects).items():
            for place in refused:
                given = list(arguments)
                given[place] = None
                with self.subTest(function=name, null=place):
                    with self.assertRaisesRegex(culet.InvalidArgument, "null"):
                        _library.check(getattr(LIBRARY, name)(*given))

    def test_all_of_them(self):
        """Where nothing is given, nothing is done."""
        for name, (result, arguments) in SIGNATURES.items():
            if result is not c_int32 or name in MAY_GET_NOTHING:
                continue
            nothing = [None if kind not in (c_int32, c_uint64, ctypes.c_size_t) else 0 for kind in arguments]
            with self.subTest(function=name), self.assertRaises(culet.InvalidArgument):
                _library.check(getattr(LIBRARY, name)(*nothing))

    def test_none_is_forgotten(self):
        tested = set(calls(self.objects))
        with_status = {name for name, (result, _) in SIGNATURES.items() if result is c_int32}
        self.assertEqual(with_status - tested, MAY_GET_NOTHING - {"culet_devices_json"})


if __name__ == "__main__":
    unittest.main()
