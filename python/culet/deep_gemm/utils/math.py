"""Quantisers with DeepGEMM's signatures and its rules: amax of at least 1e-4, scale = amax / 448,
values times the scale's reciprocal. culet.quantize_* divide instead and have no least amax
(docs/numerics.md)."""

from typing import Sequence, Tuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from culet._library import InvalidArgument
from culet._operand import check_tensor
from culet.deep_gemm._missing import missing

_LEAST, _LARGEST = 1e-4, 448.0


def ceil_div(x: int, y: int) -> int:
    """x / y, rounded up."""
    return -(-x // y)


def align(x: int, y: int) -> int:
    """x, rounded up to a multiple of y."""
    return ceil_div(x, y) * y


def ceil_to_ue8m0(x: Tensor) -> Tensor:
    """The least power of two, as FP32, that is not below each positive number."""
    fraction, exponent = torch.frexp(x.float())  # x = fraction * 2^exponent, fraction in [0.5, 1)
    return torch.ldexp(torch.ones_like(fraction), exponent - (fraction == 0.5).int())


def _cast(x: Tensor, axes: Sequence[int], use_ue8m0: bool) -> Tuple[Tensor, Tensor]:
    """E4M3 values, and the scales with the reduced axes kept."""
    scales = x.abs().float().amax(tuple(axes), keepdim=True).clamp(_LEAST) / _LARGEST
    if use_ue8m0:
        scales = ceil_to_ue8m0(scales)
    return (x * (1.0 / scales)).to(torch.float8_e4m3fn), scales


def _matrix(x: Tensor) -> Tuple[int, int]:
    check_tensor("x", x)
    if x.dim() != 2:
        raise InvalidArgument(f"x has the shape {tuple(x.shape)}; give a matrix")
    return tuple(x.shape)


def per_token_cast_to_fp8(x: Tensor, use_ue8m0: bool, gran_k: int = 128,
                          use_packed_ue8m0: bool = False) -> Tuple[Tensor, Tensor]:
    """x (m, n) -> values (m, n) E4M3 and FP32 scales (m, ceil(n / gran_k)), powers of two with
    use_ue8m0."""
    if use_packed_ue8m0:
        raise NotImplementedError("packed UE8M0 scales are SM100's layout; SM90's are float32")
    m, n = _matrix(x)
    groups = ceil_div(n, gran_k)
    values, scales = _cast(pad(x, (0, -n % gran_k)).view(m, groups, gran_k), (2,), use_ue8m0)
    return values.view(m, groups * gran_k)[:, :n].contiguous(), scales.view(m, groups)


def per_channel_cast_to_fp8(x: Tensor, use_ue8m0: bool, gran_k: int = 128) -> Tuple[Tensor, Tensor]:
    """x (m, n), m a multiple of gran_k -> values (m, n) E4M3 and FP32 scales (m / gran_k, n)."""
    m, n = _matrix(x)
    if m % gran_k:
        raise InvalidArgument(f"x has {m} rows; give a multiple of {gran_k}")
    values, scales = _cast(x.reshape(m // gran_k, gran_k, n), (1,), use_ue8m0)
    return values.view(m, n), scales.view(m // gran_k, n)


def per_block_cast_to_fp8(x: Tensor, use_ue8m0: bool, gran_k: int = 128) -> Tuple[Tensor, Tensor]:
    """x (m, n) -> values (m, n) E4M3 and FP32 scales (ceil(m / gran_k), ceil(n / gran_k))."""
    m, n = _matrix(x)
    down, along = ceil_div(m, gran_k), ceil_div(n, gran_k)
    blocks = pad(x, (0, -n % gran_k, 0, -m % gran_k)).view(down, gran_k, along, gran_k)
    values, scales = _cast(blocks, (1, 3), use_ue8m0)
    return (values.view(down * gran_k, along * gran_k)[:m, :n].contiguous(), scales.view(down, along))


def per_custom_dims_cast_to_fp8(x: Tensor, dims: Tuple[int, ...],
                                use_ue8m0: bool) -> Tuple[Tensor, Tensor]:
    """x -> E4M3 values of its shape and FP32 scales, one for each place along `dims`."""
    check_tensor("x", x)
    values, scales = _cast(x, [axis for axis in range(x.dim()) if axis not in dims], use_ue8m0)
    return values, scales.squeeze()


def __getattr__(name: str):
    return missing(__name__, name)
