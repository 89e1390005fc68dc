"""What is no array, path, number or module where one is wanted: culet.Error, with the argument's name."""

import os
import unittest

os.environ["CULET_CACHE"] = "off"

import culet
from test_operands import made


class Functions(unittest.TestCase):
    def check(self, cases):
        for words, call in cases:
            with self.subTest(words=words), self.assertRaisesRegex(culet.Error, words):
                call()

    def test_everything_but_torch(self):
        a = made((4, 8))
        self.check((
            ("folder is None", lambda: culet.LLM(None)), ("folder is 3", lambda: culet.LLM(3)),
            ("path is None", lambda: culet.tune_model(None)),
            ("tokens is None", lambda: culet.tune_model("config.json", None)),
            ("path is None", lambda: culet.load_cache(None)), ("path is 3", lambda: culet.save_cache(3)),
            ("/no/such/cache", lambda: culet.load_cache("/no/such/cache")),
            ("/no/such/model", lambda: culet.tune_model("/no/such/model")),
            ("device is None", lambda: culet.load_cache("x", None)),
            ("weight is None", lambda: culet.pack(None)),
            ("x is None", lambda: culet.quantize_fp8(None)),
            ("out's values is None", lambda: culet.quantize_fp8(a, out=(None, None))),
            ("a is None", lambda: culet.gemm(None, None)), ("b is None", lambda: culet.gemm(a, None)),
            ("out is a int", lambda: culet.gemm(a, a, 3)),
            ("bias is a int", lambda: culet.gemm(a, a, made((4, 4)), bias=3)),
            ("alpha is None", lambda: culet.gemm(a, a, made((4, 4)), alpha=None)),
            ("a_scale is a str", lambda: culet.gemm(a, a, made((4, 4)), a_scale="x")),
            ("budget is None", lambda: culet.autotune(None)),
            ("persist is None", lambda: culet.autotune(persist=None)),
            ("a is a str", lambda: culet.plan(a, a, made((4, 4)))("x")),
            ("takes no colour", lambda: culet.explain(a, a, colour=1))))

    def test_modules_of_torch(self):
        try:
            import torch
            from culet import deep_gemm
            from culet import nn as culet_nn
        except ImportError as error:
            self.skipTest(f"no torch: {error}")
        t, linear = torch.ones(4, 128, dtype=torch.bfloat16), torch.nn.Linear(128, 128, dtype=torch.bfloat16)
        fp8, bf16 = culet_nn.LinearFP8.from_linear(linear), culet_nn.LinearBF16.from_linear(linear)
        of, pair = culet_nn.LinearFP8.from_checkpoint, (t, t)
        self.check((
            ("model is a NoneType", lambda: culet_nn.patch(None)),
            ("keep is None", lambda: culet_nn.patch(linear, keep=None)),
            ("keep has 3", lambda: culet_nn.patch(linear, keep=[3])),
            ("linear is a NoneType", lambda: culet_nn.LinearFP8.from_linear(None)),
            ("weight is a NoneType", lambda: of(None, None)),
            ("weight_scale_inv is a NoneType", lambda: of(fp8.weight, None)),
            ("bias is a int", lambda: of(fp8.weight, fp8.weight_scale_inv, 3)),
            ("x is a NoneType", lambda: fp8(None)), ("x is a int", lambda: bf16(3)),
            ("last axis", lambda: fp8(torch.tensor(1.0))),
            ("a is a NoneType; give a pair", lambda: deep_gemm.fp8_gemm_nt(None, None, None)),
            ("a is None", lambda: deep_gemm.fp8_gemm_nt((None, None), (None, None), None)),
            ("recipe is 3", lambda: deep_gemm.fp8_gemm_nt(pair, pair, t, recipe=3)),
            ("b is NoneType", lambda: deep_gemm.bf16_gemm_nn(None, None, None)),
            ("sf is a NoneType", lambda: deep_gemm.get_mn_major_tma_aligned_tensor(None)),
            ("x is a NoneType", lambda: deep_gemm.per_token_cast_to_fp8(None, False)),
            ("x is a NoneType", lambda: deep_gemm.per_block_cast_to_fp8(None, False)),
            ("new_num_sms is None", lambda: deep_gemm.set_num_sms(None)),
            ("new_enable_pdl is None", lambda: deep_gemm.set_pdl(None))))
        self.assertIn("choice", culet.explain(t, t))


if __name__ == "__main__":
    unittest.main()
