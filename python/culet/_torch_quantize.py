"""Quantisers on torch tensors, by the rules of docs/numerics.md: eager torch gives the library's own
bits, and torch.compile fuses them with what stands before."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from culet._library import InvalidArgument

GROUP = 128     # values that share a scale: 1 x 128 of activations, 128 x 128 of weights
_LARGEST = 448  # of E4M3
_SOURCES = (torch.bfloat16, torch.float16, torch.float32)


def _scales(amax: Tensor) -> Tensor:
    scales = amax / _LARGEST
    # Of amax too small to divide, the least number; of zeros, 1; of a NaN or an infinity, NaN.
    scales = torch.where(scales == 0, 2.0**-149, scales)
    scales = torch.where(amax == 0, 1.0, scales)
    return torch.where(amax.isfinite(), scales, torch.nan)


def _checked(name: str, x: Tensor) -> None:
    if x.dim() != 2 or x.dtype not in _SOURCES:
        raise InvalidArgument(f"{name} is {tuple(x.shape)} {x.dtype}; give a matrix of bfloat16, "
                              "float16 or float32")


def quantize_rows(x: Tensor) -> "tuple[Tensor, Tensor]":
    """x (M, K) in BF16, F16 or FP32 -> values (M, K) E4M3 and scales (M, ceil(K / 128)) FP32."""
    _checked("x", x)
    m, k = x.shape
    groups = -(-k // GROUP)
    padded = pad(x.float(), (0, -k % GROUP)).view(m, groups, GROUP)
    scales = _scales(padded.abs().amax(2))
    values = (padded / scales[:, :, None]).clamp(-_LARGEST, _LARGEST).to(torch.float8_e4m3fn)
    return values.view(m, groups * GROUP)[:, :k].contiguous(), scales


def quantize_blocks(weight: Tensor) -> "tuple[Tensor, Tensor]":
    """weight (N, K) in BF16, F16 or FP32 -> values (N, K) E4M3 and scales (ceil(N / 128),
    ceil(K / 128)) FP32, one for each block of 128 x 128."""
    _checked("weight", weight)
    n, k = weight.shape
    blocks = pad(weight.float(), (0, -k % GROUP, 0, -n % GROUP)).view(
        -(-n // GROUP), GROUP, -(-k // GROUP), GROUP)
    scales = _scales(blocks.abs().amax((1, 3)))
    values = (blocks / scales[:, None, :, None]).clamp(-_LARGEST, _LARGEST).to(torch.float8_e4m3fn)
    return values.view(-(-n // GROUP) * GROUP, -1)[:n, :k].contiguous(), scales
