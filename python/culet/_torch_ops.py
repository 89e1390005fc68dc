"""culet's products as torch operators with fake implementations, so that torch.compile traces through
them: torch.ops.culet.gemm and torch.ops.culet.fp8_gemm_nt. Importing this module, which culet.nn
does, registers them; inside torch.compile they stand in for culet.gemm and culet.fp8_gemm_nt.

Eager code calls culet.gemm itself, which costs less than the way through torch's dispatcher."""

from typing import Optional

import torch
from torch import Tensor

from culet._call import call
from culet._gemm import fp8_gemm_nt, gemm
from culet._library import InvalidArgument
from culet._linear import w4_linear
from culet._problem import FP8_BLOCK

_LIBRARY = torch.library.Library("culet", "DEF")  # the registration lives as long as this
_LIBRARY.define(
    "gemm(Tensor a, Tensor b, Tensor? a_scale=None, Tensor? b_scale=None, Tensor? bias=None, "
    "ScalarType? out_dtype=None, Tensor? c=None, float alpha=1, float beta=0, "
    "str accumulate='precise', bool pdl=False) -> Tensor",
    tags=(torch.Tag.needs_fixed_stride_order,))
_LIBRARY.define(
    "fp8_gemm_nt(Tensor a, Tensor a_scales, Tensor b, Tensor b_scales, Tensor? bias=None, "
    "ScalarType? out_dtype=None, bool pdl=False) -> Tensor",
    tags=(torch.Tag.needs_fixed_stride_order,))
_LIBRARY.define(
    "w4_gemm_nt(Tensor a, Tensor b, Tensor b_scales, Tensor b_zeros, Tensor? bias=None) -> Tensor",
    tags=(torch.Tag.needs_fixed_stride_order,))


def _output(a: Tensor, b: Tensor, out_dtype: Optional[torch.dtype]) -> Tensor:
    if out_dtype is None:
        out_dtype = torch.bfloat16 if a.dtype == torch.float8_e4m3fn else a.dtype
    return a.new_empty((a.shape[0], b.shape[0]), dtype=out_dtype)


def _gemm(a, b, a_scale=None, b_scale=None, bias=None, out_dtype=None, c=None, alpha=1.0, beta=0.0,
          accumulate="precise", pdl=False):
    return gemm(a, b, _output(a, b, out_dtype), a_scale=a_scale, b_scale=b_scale, c=c, bias=bias,
                alpha=alpha, beta=beta, accumulate=accumulate, pdl=pdl)


def block_gemm(a: Tensor, a_scales: Tensor, b: Tensor, b_scales: Tensor,
               bias: Optional[Tensor] = None, out_dtype: Optional[torch.dtype] = None,
               pdl: bool = False) -> Tensor:
    """(a_scales . a) (b_scales . b)^T + bias as a new tensor.

    Shapes: a (M, K), a_scales (M, ceil(K / 128)), b (N, K), b_scales (ceil(N / 128),
    ceil(K / 128)), bias (N,), result (M, N). Types: as culet.fp8_gemm_nt."""
    out = _output(a, b, out_dtype)
    call(FP8_BLOCK, a, a_scales, b, b_scales, out, None, bias, 1.0, 0.0, "precise", pdl)
    return out


def _check(a: Tensor, b: Tensor) -> None:
    if a.dim() != 2 or b.dim() != 2:
        raise InvalidArgument(f"a and b have {a.dim()} and {b.dim()} axes; give matrices")
    torch._check(a.shape[1] == b.shape[1], lambda: (
        f"b has the shape {tuple(b.shape)}, but a is {tuple(a.shape)}: both need as many columns"))


def _fake_gemm(a, b, a_scale=None, b_scale=None, bias=None, out_dtype=None, c=None, alpha=1.0,
               beta=0.0, accumulate="precise", pdl=False):
    _check(a, b)
    return _output(a, b, out_dtype)


def _fake_block(a, a_scales, b, b_scales, bias=None, out_dtype=None, pdl=False):
    _check(a, b)
    return _output(a, b, out_dtype)


def _w4(a, b, b_scales, b_zeros, bias=None):
    return w4_linear(a, a.shape[0], b, b_scales, b_zeros, bias)


def _fake_w4(a, b, b_scales, b_zeros, bias=None):
    return a.new_empty((a.shape[0], b.shape[0]))


for _key in ("CPU", "CUDA"):
    _LIBRARY.impl("gemm", _gemm, _key)
    _LIBRARY.impl("w4_gemm_nt", _w4, _key)
    _LIBRARY.impl("fp8_gemm_nt", block_gemm, _key)
torch.library.register_fake("culet::gemm", _fake_gemm, lib=_LIBRARY)
torch.library.register_fake("culet::w4_gemm_nt", _fake_w4, lib=_LIBRARY)
torch.library.register_fake("culet::fp8_gemm_nt", _fake_block, lib=_LIBRARY)


# What torch.compile leaves to eager code.
_eager_gemm = torch.compiler.disable(gemm)


@torch.compiler.substitute_in_graph(gemm)
def _traced_gemm(a, b, out=None, *, a_scale=None, b_scale=None, c=None, bias=None, alpha=1, beta=0,
                 accumulate="precise", epilogue=None, out_scale=None, out_dtype=None, pdl=False, a_zero=None,
                 b_zero=None):
    if (epilogue is not None or a.dim() != 2 or not isinstance(b, Tensor) or b.dim() != 2
            or a_zero is not None or b_zero is not None):
        return _eager_gemm(a, b, out, a_scale=a_scale, b_scale=b_scale, c=c, bias=bias, alpha=alpha,
                           beta=beta, accumulate=accumulate, epilogue=epilogue, out_scale=out_scale,
                           out_dtype=out_dtype, pdl=pdl, a_zero=a_zero, b_zero=b_zero)
    if isinstance(a_scale, (int, float)):
        alpha, a_scale = alpha * a_scale, None
    if isinstance(b_scale, (int, float)):
        alpha, b_scale = alpha * b_scale, None
    if c is None and beta != 0:
        c = out
    result = torch.ops.culet.gemm(a, b, a_scale, b_scale, bias,
                                  out_dtype if out is None else out.dtype, c, float(alpha),
                                  float(beta), accumulate, pdl)
    return result if out is None else out.copy_(result)


@torch.compiler.substitute_in_graph(fp8_gemm_nt)
def _traced_fp8_gemm_nt(a, b, d, *, pdl=False):
    d.copy_(torch.ops.culet.fp8_gemm_nt(*a, *b, None, d.dtype, pdl))
