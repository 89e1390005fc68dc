"""torch tensors whose memory does not hold their values, or that have none: refused at every operand, by every
function, also where the shape was planned before."""

import os
import unittest

os.environ["CULET_CACHE"] = "off"

try:
    import torch
except ImportError as error:
    raise unittest.SkipTest(f"no torch: {error}") from error

import culet
import culet.nn
from culet import deep_gemm


def negated(tensor):
    """A view that shows the negative of its memory, of any type, as z.conj().imag is of F16 and FP32."""
    return torch._neg_view(tensor)


def without_memory(tensor):
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def zero_tensor(tensor):
    return torch._efficientzerotensor(*tensor.shape, dtype=tensor.dtype)


REFUSED = "negates what lies in memory|culet runs on cpu and cuda|has no memory"


class Views(unittest.TestCase):
    def refused(self, function, *words):
        with self.assertRaisesRegex(culet.InvalidArgument, "|".join(words) or REFUSED):
            function()

    def each(self, call, operands, skipped=()):
        """call(**operands) runs; with one operand changed it is refused, before the output is touched."""
        for _ in range(2):
            call(**operands)
        for name, value in operands.items():
            for change in (negated, without_memory, zero_tensor):
                if value is None or (name, change) in skipped:
                    continue
                with self.subTest(operand=name, change=change.__name__):
                    before = {key: other.clone() for key, other in operands.items() if other is not None}
                    self.refused(lambda: call(**{**operands, name: change(value)}))
                    for key, other in before.items():
                        self.assertTrue(torch.equal(operands[key], other), key)

    def test_the_imaginary_part(self):
        z = torch.randn(4, 64, dtype=torch.complex64)
        w, out = torch.randn(8, 64), torch.empty(4, 8)
        plain = z.imag.contiguous()
        culet.gemm(plain, w, out)
        self.refused(lambda: culet.gemm(z.conj().imag, w, out))
        z = torch.view_as_complex(torch.stack((torch.zeros(2, 1), torch.ones(2, 1)), 2))
        x, w, out = torch.ones(2, 1), torch.ones(8, 1), torch.zeros(2, 8)
        culet.gemm(x, w, out)
        plan = culet.plan(x, w, out)
        for call in (lambda: culet.gemm(z.conj().imag, w, out), lambda: plan(z.conj().imag)):
            self.refused(call)
        self.assertTrue((out == 1).all())
        culet.gemm(z.conj().imag.resolve_neg(), w, out)
        self.assertTrue((out == -1).all())

    def test_gemm(self):
        for kind in (torch.float32, torch.bfloat16):
            a, b, c = (torch.ones(shape, dtype=kind) for shape in ((4, 64), (8, 64), (4, 8)))
            self.each(lambda a, b, out, c, bias: culet.gemm(a, b, out, c=c, beta=1.0, bias=bias),
                      {"a": a, "b": b, "out": c.clone(), "c": c, "bias": torch.ones(8, dtype=kind)})
            self.each(lambda a, b: culet.gemm(a, b), {"a": a, "b": b})

    def test_scales(self):
        a, b = (torch.ones(shape).to(torch.float8_e4m3fn) for shape in ((4, 128), (16, 128)))
        out = torch.zeros(4, 16, dtype=torch.bfloat16)
        self.each(lambda a_scale, b_scale: culet.gemm(a, b, out, a_scale=a_scale, b_scale=b_scale),
                  {"a_scale": torch.ones(4), "b_scale": torch.ones(16)})
        self.each(lambda u, v, d: culet.fp8_gemm_nt((a, u), (b, v), d),
                  {"u": torch.ones(4, 1), "v": torch.ones(1, 1), "d": out})
        self.each(lambda u, v, d: deep_gemm.fp8_gemm_nt((a, u), (b, v), d),
                  {"u": torch.ones(4, 1), "v": torch.ones(1, 1), "d": out})
        values = torch.zeros(4, 8, dtype=torch.float8_e4m3fn)
        x, w = torch.ones(4, 64), torch.ones(16, 64)
        self.each(lambda out_scale: culet.gemm(x, w, values, epilogue="gated_silu", out_scale=out_scale),
                  {"out_scale": torch.zeros(4, 1)})
        zeros = {"a_zero": torch.zeros(4), "b_zero": torch.zeros(16)}
        self.each(lambda a_zero, b_zero: culet.gemm(a, b, out, a_scale=torch.ones(4), b_scale=torch.ones(16),
                                                    a_zero=a_zero, b_zero=b_zero), zeros)

    def test_plans(self):
        a, b, c, out = torch.ones(4, 128), torch.ones(8, 128), torch.ones(4, 8), torch.zeros(4, 8)
        plan = culet.plan(a, b, out, c=c, beta=1.0)
        self.each(lambda a, out, c: plan(a, out, c=c), {"a": a, "out": out, "c": c})
        self.each(lambda a, b, out, c: culet.plan(a, b, out, c=c, beta=1.0), {"a": a, "b": b, "out": out, "c": c})
        values, scales = culet.quantize_fp8(a)
        others = culet.quantize_fp8(b, "block")
        plan = culet.plan((values, scales), others, torch.zeros(4, 8, dtype=torch.bfloat16))
        self.each(lambda a_scale: plan(a_scale=a_scale), {"a_scale": scales})

    def test_quantisers(self):
        for kind in (torch.bfloat16, torch.float32):
            x = torch.ones(4, 128, dtype=kind)
            for granularity in ("group", "row"):
                self.each(lambda x: culet.quantize_fp8(x, granularity), {"x": x})
        values, scales = culet.quantize_fp8(torch.ones(4, 128))
        self.each(lambda scales: culet.quantize_fp8(torch.ones(4, 128), out=(values, scales)), {"scales": scales})
        self.each(lambda weight: culet.pack(weight), {"weight": torch.ones(64, 128)})

    def test_layers(self):
        linear = torch.nn.Linear(128, 64, dtype=torch.bfloat16).requires_grad_(False)
        for layer in (culet.nn.LinearBF16.from_linear(linear), culet.nn.LinearFP8.from_linear(linear)):
            for kind in (torch.bfloat16, torch.float32):
                self.each(lambda x: layer(x), {"x": torch.ones(4, 128, dtype=kind)})
            x = torch.ones(4, 128, dtype=torch.bfloat16)
            layer(x)
            for name, parameter in list(layer.named_parameters()):
                if parameter.dtype == torch.float8_e4m3fn:  # torch negates none
                    continue
                with self.subTest(layer=type(layer).__name__, parameter=name):
                    setattr(layer, name, torch.nn.Parameter(negated(parameter.detach()), requires_grad=False))
                    self.refused(lambda: layer(x))
                    setattr(layer, name, parameter)
            layer(x)

    def test_operators(self):
        """torch's dispatcher resolves such views before the operator."""
        a, b = torch.randint(-2, 3, (4, 128)).bfloat16(), torch.randint(-2, 3, (8, 128)).bfloat16()
        wanted = torch.ops.culet.gemm(a, b)
        self.assertTrue(torch.equal(torch.ops.culet.gemm(negated(a), b), -wanted))


if __name__ == "__main__":
    unittest.main()
