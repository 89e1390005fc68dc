"""What the layers of culet.nn share."""

from typing import Optional

import torch
from torch import Tensor, nn

from culet import _linear
from culet._library import Error, InvalidArgument, shown
from culet._operand import MOST, check_tensor

_INPUTS = (torch.bfloat16, torch.float16, torch.float32)


class Linear(nn.Module):
    """What culet's layers share: y (..., out_features) = x (..., in_features) weight^T + bias."""

    in_features: int
    out_features: int

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        for name, value in (("in_features", in_features), ("out_features", out_features)):
            if not isinstance(value, int) or not 1 <= value <= MOST:
                raise InvalidArgument(f"{name} is {shown(value)}; give a number of at least 1, below 2^31")
        self.in_features, self.out_features = in_features, out_features

    def _constant(self, name: str, value: Optional[Tensor]) -> None:
        self.register_parameter(
            name, None if value is None else nn.Parameter(value, requires_grad=False))

    def forward(self, x: Tensor) -> Tensor:
        """x (..., in_features) in BF16, F16 or FP32 -> (..., out_features) of x's type."""
        # Not where torch.compile traces, for tensors that only look like one, or for an error's sake.
        if not torch.compiler.is_compiling() and type(x) is Tensor and not x.requires_grad:
            if rows := _linear.rows_of(x, self.in_features):
                product = self._rows_product(x, rows)
                if product is not None:
                    return product
        if not isinstance(x, Tensor):
            check_tensor("x", x)
        shape = x.shape
        if shape[-1:] != (self.in_features,):
            raise InvalidArgument(
                f"x has the shape {tuple(x.shape)}; its last axis must be {self.in_features} long")
        if x.dtype not in _INPUTS:
            raise InvalidArgument(f"x holds {x.dtype}; give bfloat16, float16 or float32")
        if x.requires_grad and torch.is_grad_enabled():
            raise Error("UNSUPPORTED", f"x requires a gradient, and {type(self).__name__} has no "
                        "backward; call it under torch.no_grad() or torch.inference_mode()")
        rows = x if len(shape) == 2 else x.reshape(-1, self.in_features)
        product = self._product(rows if rows.stride(1) == 1 else rows.contiguous())
        if product.dtype != x.dtype:
            product = product.to(x.dtype)
        return product if len(shape) == 2 else product.view(*shape[:-1], self.out_features)

    def _product(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def _rows_product(self, x: Tensor, rows: int) -> Optional[Tensor]:
        """The product of contiguous BF16 x (..., in_features), or None where _product must do it."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        return (f"in_features={self.in_features}, out_features={self.out_features}, "
                f"bias={self.bias is not None}")


def check_linear(name: str, linear: nn.Linear) -> None:
    if not isinstance(linear, nn.Linear):
        raise InvalidArgument(f"{name} is a {type(linear).__name__}; give a torch.nn.Linear")
    if linear.weight.is_meta:
        raise InvalidArgument(f"{name}'s weight is on the meta device; load it first")
