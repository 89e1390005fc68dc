"""Layouts of scales."""

import torch
from torch import Tensor

from culet._library import InvalidArgument
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


def get_mk_alignment_for_contiguous_layout() -> int:
    """128: what groups of rows are padded to in DeepGEMM's contiguous layout."""
    return 128


get_m_alignment_for_contiguous_layout = get_mk_alignment_for_contiguous_layout
get_k_alignment_for_contiguous_layout = get_mk_alignment_for_contiguous_layout


def __getattr__(name: str):
    return missing(__name__, name)
