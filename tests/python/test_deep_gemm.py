"""culet.deep_gemm on CPU tensors: products in every form against FP64, layouts, quantisers, what is
refused and why."""

import inspect
import subprocess
import sys
import unittest
from unittest import mock

import culet

try:
    import torch
    from culet import deep_gemm
except ImportError as error:
    raise unittest.SkipTest(f"no torch: {error}") from error


def normal(*shape, seed=0, dtype=torch.bfloat16):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


class Problem:
    """Quantised operands and the FP64 product of what they mean."""

    def __init__(self, m, n, k, use_ue8m0=False):
        self.a = deep_gemm.per_token_cast_to_fp8(normal(m, k), use_ue8m0)
        self.b = deep_gemm.per_block_cast_to_fp8(normal(n, k, seed=1), use_ue8m0)
        rows = self.a[1].double().repeat_interleave(128, 1)[:, :k]
        blocks = self.b[1].double().repeat_interleave(128, 0)[:n].repeat_interleave(128, 1)[:, :k]
        self.wanted = (self.a[0].double() * rows) @ (self.b[0].double() * blocks).T
        self.d = torch.full((m, n), float("nan"), dtype=torch.bfloat16)


def expanded(values, scales):
    """What values with a scale for 128 of a row mean."""
    return values.double() * scales.double().repeat_interleave(128, 1)[:, :values.shape[1]]


def turned(pair):
    return tuple(x.t() for x in pair)


class Fp8(unittest.TestCase):
    def near(self, found, wanted, bound=1e-5):
        self.assertLess(float(deep_gemm.calc_diff(found, wanted)), bound)

    def test_forms(self):
        for shape in ((4, 130, 200), (128, 256, 512), (1, 1, 1)):
            p = Problem(*shape)
            for call, a, b in (("nt", p.a, p.b), ("nn", p.a, turned(p.b)),
                               ("tn", turned(p.a), turned(p.b)), ("tt", turned(p.a), p.b)):
                with self.subTest(shape=shape, form=call):
                    p.d.fill_(float("nan"))
                    self.assertIsNone(getattr(deep_gemm, f"fp8_gemm_{call}")(a, b, p.d))
                    self.near(p.d, p.wanted)

    def test_layouts_and_options(self):
        p = Problem(6, 130, 384)
        aligned = deep_gemm.get_mn_major_tma_aligned_tensor(p.a[1])
        for options in ({}, {"recipe": (1, 128, 128)}, {"recipe_a": (1, 128), "recipe_b": (128, 128)},
                        {"compiled_dims": "mnk", "disable_ue8m0_cast": True}):
            p.d.fill_(float("nan"))
            deep_gemm.fp8_gemm_nt((p.a[0], aligned), p.b, p.d, **options)
            self.near(p.d, p.wanted)
        deep_gemm.gemm_fp8_fp8_bf16_nt(p.a, p.b, p.d.fill_(float("nan")))
        self.near(p.d, p.wanted)

    def test_c_and_alpha(self):
        p = Problem(6, 130, 384)
        c = normal(6, 130, seed=7, dtype=torch.float32) * 10
        d = torch.full((6, 130), float("nan"))
        deep_gemm.fp8_gemm_nt(p.a, p.b, d, c)
        self.near(d, p.wanted + c.double())
        deep_gemm.fp8_gemm_nt(p.a, p.b, d.copy_(c), d, alpha=0.5)
        self.near(d, 0.5 * p.wanted + c.double())

    def test_no_k(self):
        d, c = torch.full((2, 3), float("nan")), torch.ones(2, 3)
        deep_gemm.bf16_gemm_nt(normal(2, 0), normal(3, 0), d)
        self.assertTrue((d == 0).all())
        deep_gemm.bf16_gemm_nt(normal(2, 0), normal(3, 0), d, c)
        self.assertTrue((d == 1).all())

    def test_bf16(self):
        a, b, c = normal(5, 200), normal(130, 200, seed=1), normal(5, 130, seed=2)
        wanted = a.double() @ b.double().T
        for form, x, y in (("nt", a, b), ("nn", a, b.t().contiguous()), ("nn", a, b.t()),
                           ("tn", a.t().contiguous(), b.t()), ("tt", a.t(), b)):
            for dtype in (torch.bfloat16, torch.float32):
                d = torch.full((5, 130), float("nan"), dtype=dtype)
                getattr(deep_gemm, f"bf16_gemm_{form}")(x, y, d)
                self.near(d, wanted)
                getattr(deep_gemm, f"bf16_gemm_{form}")(x, y, d, c.to(dtype))
                self.near(d, wanted + c.double())
                getattr(deep_gemm, f"bf16_gemm_{form}")(x, y, d, d)
                self.near(d, 2 * wanted + c.double(), 3e-5)


class Utilities(unittest.TestCase):
    def test_layouts(self):
        for shape in ((5, 3), (8, 1), (2, 7, 4)):
            sf = normal(*shape, dtype=torch.float32)
            found = deep_gemm.get_mn_major_tma_aligned_tensor(sf)
            self.assertTrue(torch.equal(found, sf))
            self.assertEqual(found.stride()[-2:], (1, deep_gemm.get_tma_aligned_size(shape[-2], 4)))
            self.assertIs(deep_gemm.utils.layout.get_mn_major_tma_aligned_tensor(found), found)
        self.assertEqual((deep_gemm.get_tma_aligned_size(5, 4), deep_gemm.align(5, 4), deep_gemm.ceil_div(5, 4)),
                         (8, 8, 2))
        same = deep_gemm.transform_sf_into_required_layout
        rows, blocks = torch.rand(5, 2), torch.rand(1, 2)
        self.assertEqual(same(rows, 5, 200, (1, 128, 128), is_sfa=True).stride(), (1, 8))
        self.assertIs(same(blocks, 5, 200, (1, 128, 128), is_sfa=False), blocks)

    def test_quantisers(self):
        x = normal(130, 200, dtype=torch.float32)
        for cast, each in (
                (deep_gemm.per_token_cast_to_fp8, lambda s: s.repeat_interleave(128, 1)[:, :200]),
                (deep_gemm.per_block_cast_to_fp8,
                 lambda s: s.repeat_interleave(128, 0)[:130].repeat_interleave(128, 1)[:, :200])):
            for ue8m0 in (False, True):
                values, scales = cast(x, ue8m0)
                error = (values.double() * each(scales).double() - x.double()).abs()
                self.assertTrue((error <= x.double().abs() / 15 + 2.0**-10 * each(scales)).all())
                self.assertFalse(values.float().isnan().any())
                if ue8m0:
                    self.assertTrue((torch.frexp(scales)[0] == 0.5).all())
        values, scales = deep_gemm.per_channel_cast_to_fp8(x[:128], False)
        self.assertEqual((values.shape, scales.shape), ((128, 200), (1, 200)))
        values, scales = deep_gemm.utils.math.per_custom_dims_cast_to_fp8(x, (0,), False)
        self.assertTrue(torch.equal(scales, x.abs().amax(1) / 448))
        zeros = deep_gemm.per_token_cast_to_fp8(torch.zeros(2, 3), False)
        self.assertTrue((zeros[0].float() == 0).all())
        powers = deep_gemm.utils.ceil_to_ue8m0(torch.tensor([1.0, 1.1, 0.5, 3e-5]))
        self.assertEqual(powers.tolist(), [1, 2, 0.5, 2.0**-15])

    def test_calc_diff(self):
        x = normal(3, 4, dtype=torch.float32)
        self.assertAlmostEqual(float(deep_gemm.calc_diff(x, x)), 0, delta=1e-12)
        self.assertAlmostEqual(float(deep_gemm.calc_diff(x, -x)), 2, delta=1e-12)
        self.assertEqual(deep_gemm.testing.count_bytes(x, (x, None)), 96)


class WeightGradients(unittest.TestCase):
    """The recipe (1, 1, 128): both operands have a scale for 128 values of a row, and FP32 sums go on in FP32."""

    def test_against_double(self):
        for m, n, k in ((128, 256, 512), (1, 1, 1), (5, 130, 200), (17, 3, 128), (130, 129, 1000)):
            (av, au), (bv, bu) = (deep_gemm.per_token_cast_to_fp8(normal(rows, k, seed=rows, dtype=torch.float32), False)
                                  for rows in (m, n))
            wanted = expanded(av, au) @ expanded(bv, bu).t()
            c = normal(m, n, seed=9, dtype=torch.float32) * 10
            for options in ({"recipe": (1, 1, 128)}, {"recipe_a": (1, 128), "recipe_b": (1, 128)}):
                with self.subTest(shape=(m, n, k)):
                    d = torch.full((m, n), float("nan"))
                    deep_gemm.fp8_gemm_nt((av, au), (bv, bu), d, **options)
                    self.near(d, wanted, k)
                    deep_gemm.fp8_gemm_nt((av, au), (bv, bu), d.copy_(c), d, **options)
                    self.near(d, wanted + c.double(), k)
            deep_gemm.wgrad_gemm_fp8_fp8_fp32_nt((av, au), (bv, bu), d.copy_(c))
            self.near(d, wanted + c.double(), k)
            d = torch.full((m, n), float("nan"))
            deep_gemm.fp8_gemm_tn(turned((av, au)), turned((bv, bu)), d, recipe=(1, 1, 128))
            self.near(d, wanted, k)
            d = culet.gemm(av, bv, a_scale=au, b_scale=bu, out_dtype=torch.float32)
            if bu.shape != (-(-n // 128), -(-k // 128)):
                self.near(d, wanted, k)

    def near(self, found, wanted, k):
        self.assertLess(float((found.double() - wanted).abs().max()), 2e-6 * k**0.5 * float(wanted.abs().max() + 1))

    def test_many_steps(self):
        """Sums of many products keep FP32's bits."""
        a, b = (deep_gemm.per_token_cast_to_fp8(torch.ones(shape), True) for shape in ((16, 256), (32, 256)))
        out = torch.zeros(16, 32)
        for step in range(1, 70):
            deep_gemm.wgrad_gemm_fp8_fp8_fp32_nt(a, b, out)
            self.assertTrue((out == 256 * step).all())

    def test_a_kernel_of_its_own(self):
        """Not only the reference multiplies them."""
        a, b = (deep_gemm.per_token_cast_to_fp8(normal(rows, 512, dtype=torch.float32), False) for rows in (64, 256))
        text = culet.explain(a[0], b[0], torch.empty(64, 256), a_scale=a[1], b_scale=b[1])
        self.assertRegex(text, "choice +cpu_simd/blocked/")


class Settings(unittest.TestCase):
    def test_num_sms(self):
        from culet.deep_gemm import _Settings
        before = _Settings.fp8, _Settings.bf16, _Settings.num_sms
        try:
            deep_gemm.set_num_sms(1)
            self.assertEqual((deep_gemm.get_num_sms(), _Settings.fp8.sm_budget), (1, 1))
            p = Problem(4, 130, 200)
            deep_gemm.fp8_gemm_nt(p.a, p.b, p.d)
            self.assertLess(float(deep_gemm.calc_diff(p.d, p.wanted)), 1e-5)
            for wrong in (-2, 1.5, None, 2**31, 10**400, "1"):
                with self.assertRaisesRegex(culet.InvalidArgument, "give a number from 0"):
                    deep_gemm.set_num_sms(wrong)
            deep_gemm.set_num_sms(0)
            self.assertEqual((_Settings.num_sms, _Settings.fp8.sm_budget, _Settings.fp8_rows.sm_budget), (None, 0, 0))
        finally:
            _Settings.fp8, _Settings.bf16, _Settings.num_sms = before

    def test_pdl_and_others(self):
        p, found = Problem(1, 3, 128), []
        with mock.patch.object(deep_gemm, "call", lambda *arguments: found.append(arguments[-1])):
            for on in (False, True, False):
                deep_gemm.set_pdl(on)
                self.assertIs(deep_gemm.get_pdl(), on)
                deep_gemm.fp8_gemm_nt(p.a, p.b, p.d)
                deep_gemm.bf16_gemm_nt(normal(1, 8), normal(3, 8), p.d)
        self.assertEqual(found, [False, False, True, True, False, False])
        deep_gemm.set_tc_util(100)
        deep_gemm.set_ignore_compile_dims(True)
        self.assertEqual(deep_gemm.get_tc_util(), 100)
        try:
            for given, kept in ((80, 80), (1, 1), (0, 100)):
                deep_gemm.set_tc_util(given)
                self.assertEqual(deep_gemm.get_tc_util(), kept)
            for wrong in (-1, 101, 0.5, None):
                with self.assertRaisesRegex(culet.InvalidArgument, "new_tc_util is .*give a number from 0 to 100"):
                    deep_gemm.set_tc_util(wrong)
        finally:
            deep_gemm.set_tc_util(100)


class Names(unittest.TestCase):
    def test_modules(self):
        """What DeepGEMM's users import, from where."""
        from culet.deep_gemm import ceil_to_ue8m0, get_k_alignment_for_contiguous_layout, layout, math
        from culet.deep_gemm.testing import empty_suppress, suppress_stdout_stderr, utils as of_tests
        from culet.deep_gemm.testing.bench import suppress_stdout_stderr as same
        from culet.deep_gemm.testing.utils import get_arch_major
        from culet.deep_gemm.utils import get_k_alignment_for_contiguous_layout as of_utils
        self.assertEqual(ceil_to_ue8m0(torch.tensor([1.0, 1.1, 0.3, 4.0])).tolist(), [1, 2, 0.5, 4])
        self.assertEqual((get_k_alignment_for_contiguous_layout(), of_utils()), (128, 128))
        self.assertIs(layout.get_tma_aligned_size, deep_gemm.get_tma_aligned_size)
        self.assertIs(math.ceil_div, deep_gemm.ceil_div)
        self.assertIs(of_tests.get_arch_major, get_arch_major)
        self.assertIs(suppress_stdout_stderr, same)
        with empty_suppress():
            pass
        with self.assertRaisesRegex(NotImplementedError, "culet bench"):
            deep_gemm.testing.bench(lambda: None)

    def test_suppressed(self):
        code = ("import os, sys\n"
                "from culet.deep_gemm.testing import empty_suppress, suppress_stdout_stderr\n"
                "print('a', end='')\n"
                "with suppress_stdout_stderr():\n"
                "    print('b'); print('b', file=sys.stderr); os.write(1, b'b'); os.write(2, b'b')\n"
                "with empty_suppress():\n"
                "    print('c', end='')\n"
                "try:\n"
                "    with suppress_stdout_stderr():\n"
                "        raise KeyError\n"
                "except KeyError:\n"
                "    print('d', end='')\n"
                "os.close(os.open('/dev/null', os.O_RDONLY)); print(os.open('/dev/null', os.O_RDONLY), file=sys.stderr)\n")
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "acd", "3\n"))  # and no descriptor was lost


class Refusals(unittest.TestCase):
    def refused(self, kind, words, call, *args, **options):
        with self.assertRaisesRegex(kind, words):
            call(*args, **options)

    def test_missing(self):
        for name, words in (("k_grouped_bf16_gemm_tn_contiguous", "grouped products"), ("fp4_gemm_nt", "FP4"),
                            ("cublaslt_gemm_nt", "bf16_gemm_nt"), ("fp8_einsum", "no plain product"),
                            ("fp8_mqa_logits", "attention"), ("fp8_mega_moe", "experts"),
                            ("k_grouped_fp8_gemm_tn_contiguous", "grouped")):
            self.refused(NotImplementedError, words, getattr(deep_gemm, name), 1, 2, x=3)
        self.refused(NotImplementedError, "SM100", deep_gemm.utils.get_mn_major_tma_aligned_packed_ue8m0_tensor)
        self.refused(NotImplementedError, "culet bench", deep_gemm.testing.bench_kineto)
        self.assertFalse(hasattr(deep_gemm, "no_such_function"))

    def test_names_of_every_kind(self):
        """Those of DeepGEMM 1 and 2, and of the forks that are on PyPI."""
        for name in ("epilogue", "mega", "localize", "JITTuner", "shutdown",
                     "k_grouped_wgrad_gemm_fp8_fp8_fp32_nt", "use_deterministic_algorithms", "fp8_paged_mqa_logits"):
            self.refused(NotImplementedError, f"culet.deep_gemm.{name}: ", getattr(deep_gemm, name))
        for name in ("cast_to_ue4m3", "per_token_cast_to_nvfp4", "cast_back_from_fp8"):
            self.refused(NotImplementedError, name, getattr(deep_gemm.utils.math, name))
        self.refused(NotImplementedError, "torch.distributed", deep_gemm.utils.init_dist, 0, 1)
        self.refused(NotImplementedError, "tests", deep_gemm.testing.ignore_env, "X", bool)
        self.assertFalse(deep_gemm.get_deterministic_algorithms())
        self.assertIs(deep_gemm.testing.numeric.calc_diff, deep_gemm.calc_diff)

    def test_arguments_by_name(self):
        """Names and order of DeepGEMM's arguments, which programs give by either."""
        fp8 = ["a", "b", "d", "c", "recipe", "recipe_a", "recipe_b", "compiled_dims", "disable_ue8m0_cast", "alpha",
               "epilogue"]
        for form in ("nt", "nn", "tn", "tt"):
            for name, wanted in ((f"fp8_gemm_{form}", fp8), (f"fp8_fp4_gemm_{form}", fp8),
                                 (f"bf16_gemm_{form}", [*fp8[:4], "compiled_dims", "alpha", "epilogue"])):
                found = inspect.signature(getattr(deep_gemm, name)).parameters
                self.assertEqual(list(found), wanted, name)
                self.assertTrue(all(value.default is not value.empty for value in list(found.values())[3:]), name)
        p = Problem(4, 130, 200)
        deep_gemm.fp8_gemm_nn(p.a, b=turned(p.b), d=p.d, c=None, compiled_dims="nk")
        self.assertLess(float(deep_gemm.calc_diff(p.d, p.wanted)), 1e-5)
        self.refused(NotImplementedError, "epilogue is 3", deep_gemm.fp8_gemm_nt, p.a, p.b, p.d, epilogue=3)
        self.refused(NotImplementedError, "epilogue is 3", deep_gemm.bf16_gemm_tt, normal(3, 4), normal(5, 3), p.d,
                     epilogue=3)

    def test_arguments(self):
        p = Problem(4, 130, 200)
        invalid = culet.InvalidArgument
        nt = deep_gemm.fp8_gemm_nt
        self.refused(invalid, "a is a Tensor; give a pair", nt, p.a[0], p.b, p.d)
        self.refused(NotImplementedError, "recipe \\(1, 128, 64\\)", nt, p.a, p.b, p.d, recipe=(1, 128, 64))
        self.refused(invalid, "b's scales has the shape .*must be \\(130, 2\\)", nt, p.a, p.b, p.d, recipe=(1, 1, 128))
        self.refused(invalid, "recipe alone", nt, p.a, p.b, p.d, recipe_a=(1, 128))
        self.refused(NotImplementedError, "packed UE8M0", nt, (p.a[0], p.a[1].int()), p.b, p.d)
        self.refused(invalid, "one type", nt, p.a, p.b, p.d, p.d.float())
        self.refused(invalid, "must be \\(4, 130\\)", nt, p.a, p.b, p.d[:, :1])
        self.refused(invalid, "b has the strides|its rows must be", nt, p.a,
                     (p.b[0].t().contiguous().t(), p.b[1]), p.d)
        self.refused(invalid, "two axes", deep_gemm.bf16_gemm_nn, normal(2, 3), [1], p.d)
        self.refused(invalid, "multiple of 128", deep_gemm.per_channel_cast_to_fp8, normal(5, 3), False)
        self.refused(invalid, "float32", deep_gemm.get_mn_major_tma_aligned_tensor, normal(5, 3))


if __name__ == "__main__":
    unittest.main()
