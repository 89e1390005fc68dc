"""DeepGEMM's questions of tests."""

import torch

from culet.deep_gemm._missing import missing

__all__ = ["get_arch_major"]


def get_arch_major() -> int:
    """9 of Hopper: the first number of the current CUDA device's compute capability."""
    return torch.cuda.get_device_capability()[0]


def __getattr__(name: str):
    return missing(__name__, name)
