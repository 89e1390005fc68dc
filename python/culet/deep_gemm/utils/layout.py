"""Layouts of scales."""

import torch
from torch import Tensor

from culet._library import InvalidArgument, shown
from culet._operand import check_tensor
from culet.deep_gemm._missing import missing
from culet.deep_gemm.utils.math import align

_TMA_BYTES = 16  # what an address, or a stride, that TMA reads is a multiple of


def get_tma_aligned_size(mn: int, element_size: int) -> int:
    """mn rounded up to a multiple of 16 bytes, in elements."""
    return align(mn, _TMA_BYTES // element_size)


def get_mn_major_tma_aligned_tensor(sf: Tensor) -> Tensor:
    """Scales (mn, k) or (groups, mn, k) FP32 with mn contiguous and k's stride a multiple of 16 bytes;
    `sf` itself where it lies so already. culet's kernels take any order: a copy that is made for each
    product costs more than it gains."""
    check_tensor("sf", sf)
    if sf.dim() not in (2, 3) or sf.dtype != torch.float32:
        raise InvalidArgument(f"sf is {tuple(sf.shape)} {sf.dtype}; give a matrix, or one a group, of "
                              "float32")
    mn, k = sf.shape[-2:]
    aligned = get_tma_aligned_size(mn, sf.element_size())
    wanted = (1, aligned) if sf.dim() == 2 else (k * aligned, 1, aligned)
    if sf.stride() == wanted and sf.data_ptr() % _TMA_BYTES == 0:
        return sf
    out = sf.new_zeros((*sf.shape[:-2], k, aligned)).transpose(-1, -2)[..., :mn, :]
    return out.copy_(sf)


get_col_major_tma_aligned_tensor = get_mn_major_tma_aligned_tensor  # its name in DeepGEMM 1


_alignment = 128


def get_mk_alignment_for_contiguous_layout() -> int:
    """What groups of rows begin at multiples of in DeepGEMM's contiguous layout: 128, or what
    set_mk_alignment_for_contiguous_layout set. culet's kernels need no alignment."""
    return _alignment


def set_mk_alignment_for_contiguous_layout(new_value: int) -> None:
    """Where groups begin from now on in the layout of ends (use_psum_layout)."""
    global _alignment
    if isinstance(new_value, bool) or not isinstance(new_value, int) or not 1 <= new_value < 2**31:
        raise InvalidArgument(f"new_value is {shown(new_value)}; give a number of rows from 1 on")
    _alignment = new_value


get_m_alignment_for_contiguous_layout = get_mk_alignment_for_contiguous_layout
get_k_alignment_for_contiguous_layout = get_mk_alignment_for_contiguous_layout


def __getattr__(name: str):
    return missing(__name__, name)
