"""DeepGEMM's measures of a result."""

import torch
from torch import Tensor

from culet._library import InvalidArgument
from culet._operand import check_tensor
from culet.deep_gemm._missing import missing

__all__ = ["calc_diff", "count_bytes"]


def calc_diff(x: Tensor, y: Tensor) -> Tensor:
    """1 - 2 <x, y> / (<x, x> + <y, y>) in FP64: 0 for equal tensors, about half of the squared
    relative error of near ones."""
    check_tensor("x", x)
    check_tensor("y", y)
    if x.shape != y.shape:
        raise InvalidArgument(f"y has the shape {tuple(y.shape)}, but x is {tuple(x.shape)}: give both one shape")
    x, y = x.to(torch.float64).flatten(), y.to(torch.float64).flatten()
    both = x.dot(x) + y.dot(y)
    return torch.where(both == 0, 0.0, 1 - 2 * x.dot(y) / both)


def count_bytes(*tensors) -> int:
    """The bytes of all tensors, also of those in tuples and lists; None counts nothing."""
    total = 0
    for value in tensors:
        if isinstance(value, (tuple, list)):
            total += count_bytes(*value)
        elif value is not None:
            total += value.nbytes
    return total


def __getattr__(name: str):
    return missing(__name__, name)
