"""DeepGEMM's helpers of tests: its measures of a result."""

import torch

from culet.deep_gemm._missing import missing
from culet.deep_gemm.testing import numeric
from culet.deep_gemm.testing.numeric import calc_diff, count_bytes

__all__ = ["calc_diff", "count_bytes", "get_arch_major", "numeric"]


def get_arch_major() -> int:
    """9 of Hopper: the first number of the current CUDA device's compute capability."""
    return torch.cuda.get_device_capability()[0]


def __getattr__(name: str):
    return missing(__name__, name)
