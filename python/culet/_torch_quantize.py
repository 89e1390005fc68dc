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


MIDDLE = 8       # the zero point of symmetric codes of 4 bits
_OF_WORD = 8     # such codes of an int32, the first in its lowest bits
_MOST_CODE = 15
_ROWS = 1024     # that are in FP64 at a time


def quantize_groups(weight: Tensor, group: int, symmetric: bool) -> "tuple[Tensor, Tensor, Tensor]":
    """weight (N, K) in BF16, F16 or FP32 -> codes (N, K) uint8 0 to 15, scales (N, K / group) of weight's type and
    zero points (N, K / group) uint8: (code - zero) * scale is nearest to the weight.

    symmetric: scales are amax / 7.5, zero points 8; else they span the group's least to its largest element, and 0."""
    _checked("weight", weight)
    n, k = weight.shape
    codes = torch.empty((n, k), dtype=torch.uint8, device=weight.device)
    scales = weight.new_empty((n, k // group))
    zeros = torch.full((n, k // group), MIDDLE, dtype=torch.uint8, device=weight.device)
    for first in range(0, n, _ROWS):
        rows = slice(first, first + _ROWS)
        values = weight[rows].double().unflatten(1, (-1, group))
        low, high = values.amin(2).clamp(max=0), values.amax(2).clamp(min=0)
        if symmetric:
            scale = torch.maximum(high, -low) / (_MOST_CODE / 2)
        else:
            scale = (high - low) / _MOST_CODE
        scale = torch.where(high == low, 1.0, scale).to(weight.dtype)
        least = torch.ones((), dtype=torch.int16 if weight.element_size() == 2 else torch.int32).view(weight.dtype)
        scale = torch.where(scale == 0, least.to(weight.device), scale)  # the least number above 0
        if not scale.isfinite().all():
            raise InvalidArgument("weight holds an element that is not finite, or too large for a scale; load it again")
        scales[rows], of = scale, scale.double()
        if not symmetric:
            zeros[rows] = (-low / of).round().clamp(0, _MOST_CODE).to(torch.uint8)
        code = (values / of.unsqueeze(2)).round() + zeros[rows].unsqueeze(2)
        codes[rows] = code.clamp(0, _MOST_CODE).to(torch.uint8).flatten(1)
    return codes, scales, zeros


def pack_rows(codes: Tensor) -> Tensor:
    """codes (R, C) 0 to 15 -> words (R, ceil(C / 8)) int32; codes beyond the end are 0."""
    padded = pad(codes.detach().to(torch.uint8), (0, -codes.shape[1] % _OF_WORD))
    return (padded[:, ::2] | padded[:, 1::2] << 4).reshape(-1).view(torch.int32).view(codes.shape[0], -1)


def unpack_rows(words: Tensor, count: int) -> Tensor:
    """words (R, ceil(count / 8)) int32 -> codes (R, count) uint8."""
    halves = words.reshape(-1).view(torch.uint8).view(words.shape[0], -1)
    return torch.stack((halves & 15, halves >> 4), 2).flatten(1)[:, :count]
