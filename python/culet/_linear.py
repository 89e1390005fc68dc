"""The products of culet.nn's layers in eager PyTorch, by the shortest way: on a GPU a step of few tokens waits for
the host."""

import weakref

import torch

from culet import _stream
from culet._call import call
from culet._engine import engine
from culet._launch import launch
from culet._operand import Packed
from culet._problem import ANY, FP8_BLOCK
from culet._quantize import GROUP, quantize_fp8, quantize_rows_to
from culet._tuning import autotune

_ALIGNMENT = 256  # of the scales behind the values
_READY = {}       # what a product depends on -> its plan, as long as _plans keeps it
_MOST = 4096
_BIASES = (None, torch.bfloat16, torch.float32)  # what kernels add


def rows_of(x, k):
    """How many rows of BF16 x (..., K) has where it is as the functions here take it; else 0."""
    if x.dtype != torch.bfloat16 or not x.is_contiguous() or not (x.is_cuda or x.is_cpu) or x.is_neg() or (
            not x.data_ptr()):
        return 0
    shape = x.shape
    return x.numel() // k if shape and shape[-1] == k else 0


def fp8_linear(x, m, weight, scales, bias):
    """y (..., N) BF16 = x weight^T + bias, of x (..., K), m rows, quantised by row and group of 128.

    weight (N, K) E4M3, scales (ceil(N / 128), ceil(K / 128)) FP32, bias (N,) of BF16 or FP32, or None. None
    where the bias has another type."""
    kind = None if bias is None else bias.dtype
    if kind not in _BIASES:
        return None
    place, shape = x.get_device(), weight.shape
    n, k = shape
    groups = -(-k // GROUP)
    behind = -(-m * k // _ALIGNMENT) * _ALIGNMENT  # of the values
    both = torch.empty(behind + 4 * m * groups, dtype=torch.uint8, device=x.device)
    y = _empty(x, n)
    key = (m, place, weight.data_ptr(), shape, weight.stride(), weight.dtype, scales.data_ptr(), scales.shape,
           scales.stride(), scales.dtype, None if bias is None else (bias.data_ptr(), kind, bias.shape, bias.stride()))
    plan = _READY.get(key, _nothing)()
    if weight.is_neg() or scales.is_neg() or (bias is not None and bias.is_neg()):
        plan = None  # for the way that refuses it
    if plan is None or autotune.running:
        values = both[:m * k].view(m, k).view(torch.float8_e4m3fn)
        of_x = both[behind:].view(torch.float32).view(m, groups)
        quantize_fp8(x.view(m, k), out=(values, of_x))
        _keep(key, call(FP8_BLOCK, values, of_x, weight, scales, y.view(m, n), None, bias, 1.0, 0.0, "precise",
                        False))
        return y
    plan.used = True
    values = both.data_ptr()
    stream = None if place < 0 else _stream.current(place)
    quantize_rows_to(m, k, k, place, x.data_ptr(), values, values + behind, stream)
    workspace = plan.workspace and plan.engine.workspaces.get(plan.workspace, stream)
    launch(plan.handle, values, values + behind, None, y.data_ptr(), 1.0, 0.0, workspace, stream)
    return y


def bf16_linear(x, m, weight, bias):
    """y (..., N) BF16 = x weight^T + bias, of x (..., K), m rows, weight (N, K), bias (N,) or None."""
    n, k = weight.shape
    y = _empty(x, n)
    flat = x.dim() == 2
    call(ANY, x if flat else x.view(m, k), None, weight, None, y if flat else y.view(m, n), None, bias, 1.0, 0.0,
         "precise", False)
    return y


def w4_linear(x, m, packed, scales, zeros, bias):
    """y (..., N) of x's type = x weight^T + bias, of x (..., K) contiguous, m rows, or (m, K) with contiguous rows.

    packed (N, K / 8) int32, scales and zeros (N, groups), bias (N,) or None."""
    n, k = packed.shape[0], packed.shape[1] * 8
    y = _empty(x, n)
    weight = Packed(packed, packed.data_ptr(), "uint4", (n, k), packed.get_device(), 0, "u4")
    flat = x.dim() == 2
    call(ANY, x if flat else x.view(m, k), None, weight, scales, y if flat else y.view(m, n), None, bias, 1.0, 0.0,
         "precise", False, zeros=(None, zeros))
    return y


def _empty(x, n):
    """y (..., N) of x's type for x (..., K). Strides given make it cheaper."""
    shape = x.shape
    if len(shape) == 2:
        return torch.empty_strided((shape[0], n), (n, 1), dtype=x.dtype, device=x.device)
    if len(shape) == 3:
        return torch.empty_strided((shape[0], shape[1], n), (shape[1] * n, n, 1), dtype=x.dtype,
                                   device=x.device)
    return torch.empty((*shape[:-1], n), dtype=x.dtype, device=x.device)


def _keep(key, plan):
    if len(_READY) >= _MOST:
        _READY.clear()
    if plan is not None:
        _READY[key] = weakref.ref(plan)


def _nothing():
    return None
