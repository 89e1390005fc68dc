"""quantize_fp8: E4M3 values and FP32 scales of an array."""

import sys
from ctypes import byref, c_int32, c_void_p
from typing import Any, Optional, Tuple

from culet import _stream
from culet._engine import engine
from culet._library import (BFLOAT16, FLOAT16, FLOAT32, FLOAT8_E4M3, LIBRARY, QUANT_B, QUANT_K,
                            QUANT_ROW, QUANT_TENSOR, ROW_MAJOR, InvalidArgument, Matrix, check, shown)
from culet._make import maker
from culet._operand import HOST, MOST, element_type, is_tensor, matrix, operand, ordered

GROUP = 128
_quantize = LIBRARY.culet_quantize
_GRANULARITIES = {"group": QUANT_K, "block": QUANT_B, "row": QUANT_ROW, "tensor": QUANT_TENSOR}


def quantize_fp8(x: Any, granularity: str = "group",
                 out: Optional[Tuple[Any, Any]] = None) -> Tuple[Any, Any]:
    """(values, scales) with x = scales . values, as gemm and fp8_gemm_nt take them.

    Shapes: x (M, K); values (M, K) E4M3; scales FP32 by granularity: "group" (M, ceil(K / 128)), as
    of activations; "block" (ceil(M / 128), ceil(K / 128)), as of weights; "row" (M, 1); "tensor"
    (1, 1).
    Numerics: a scale is amax / 448 of what shares it, 1 where all is 0; values are rounded to nearest
    even.
    Types: x BF16, F16 or FP32 with contiguous rows or columns. On a GPU BF16 with contiguous rows, by
    group.
    out: the pair to write to; made when None, for x of torch, numpy (with ml_dtypes) and CuPy (values
    as uint8 bits).
    Async: on the stream that gemm takes, which may be captured.
    Raises: InvalidArgument and Error.
    """
    quant = _GRANULARITIES.get(granularity) if isinstance(granularity, str) else None
    if quant == QUANT_K and out is None and is_tensor(x):
        found = _rows_of_bf16(x)
        if found is not None:
            return found
    if quant is None:
        raise InvalidArgument(f"granularity is {shown(granularity)}; give "
                              f"{' or '.join(map(repr, _GRANULARITIES))}")
    found, stream = ordered("x", x, out if isinstance(out, (tuple, list)) else ())
    code = element_type("x", found, BFLOAT16, FLOAT16, FLOAT32)
    (m, k), groups = found.shape, -(-found.shape[1] // GROUP)
    shape = {QUANT_K: (m, groups), QUANT_B: (-(-m // GROUP), groups), QUANT_ROW: (m, 1),
             QUANT_TENSOR: (1, 1)}[quant]
    if out is None:
        empty = maker("x", x)
        out = empty((m, k), "float8_e4m3fn"), empty(shape, "float32")
        if m == 0 or k == 0:
            out[1][...] = 1
    values, scales = _checked(out, found, shape, stream)
    if m == 0 or k == 0:
        return out
    check(_quantize(engine(found.place).handle, quant, GROUP if quant in (QUANT_K, QUANT_B) else 0,
                    found.pointer, byref(matrix("x", found, code)), values.pointer,
                    byref(matrix("values", values, FLOAT8_E4M3)), scales.pointer,
                    byref(matrix("scales", scales, FLOAT32)), stream))
    return out


# What culet_quantize is told of rows of BF16, by their number, length, pitch and device.
_LAYOUTS = {}
_MOST_LAYOUTS = 4096
_quantize_rows = LIBRARY["culet_quantize"]  # of arguments that are ctypes' already
_BY_GROUP = c_int32(QUANT_K), c_int32(GROUP)


def _rows_of_bf16(x):
    """The activations of a layer, by the shortest way; None for all else."""
    torch = sys.modules["torch"]
    if x.dtype != torch.bfloat16 or len(x.shape) != 2 or 0 in x.shape or x.layout != torch.strided:
        return None
    (m, k), (down, along), place, pointer = x.shape, x.stride(), x.get_device(), x.data_ptr()
    if along != 1 or not (x.is_cuda or x.is_cpu) or not pointer or x.is_neg():
        return None
    groups = -(-k // GROUP)
    # Strides given make it cheaper.
    values = torch.empty_strided((m, k), (k, 1), dtype=torch.float8_e4m3fn, device=x.device)
    scales = torch.empty_strided((m, groups), (groups, 1), dtype=torch.float32, device=x.device)
    quantize_rows_to(m, k, down, place, pointer, values.data_ptr(), scales.data_ptr(),
                     None if place < 0 else _stream.current(place))
    return values, scales


def quantize_rows_to(m, k, down, place, x, values, scales, stream):
    """Quantises (M, K) of BF16, rows `down` elements apart, by group. x, values and scales, which lie row by row
    without gaps, and stream are addresses."""
    layouts = _LAYOUTS.get((m, k, down, place))
    if layouts is None:
        groups = -(-k // GROUP)
        if max(m, k) > MOST:
            raise InvalidArgument(f"x has the shape {(m, k)}; give at most {MOST} rows and columns")
        made = (Matrix(type=BFLOAT16, order=ROW_MAJOR, rows=m, cols=k, ld=down if m > 1 else k),
                Matrix(type=FLOAT8_E4M3, order=ROW_MAJOR, rows=m, cols=k, ld=k),
                Matrix(type=FLOAT32, order=ROW_MAJOR, rows=m, cols=groups, ld=groups))
        layouts = (c_void_p(engine(place).handle), *map(byref, made))
        if len(_LAYOUTS) >= _MOST_LAYOUTS:
            _LAYOUTS.clear()
        _LAYOUTS[m, k, down, place] = layouts
    handle, of_x, of_values, of_scales = layouts
    check(_quantize_rows(handle, *_BY_GROUP, c_void_p(x), of_x, c_void_p(values), of_values, c_void_p(scales),
                         of_scales, c_void_p(stream)))


def _checked(out, x, shape, stream):
    """The operands of the pair to write to, ready on `stream`."""
    try:
        values, scales = out
    except (TypeError, ValueError):
        raise InvalidArgument(f"out is a {type(out).__name__}; give a pair (values, scales)") from None
    names = "out's values", "out's scales"
    found = operand(names[0], values), operand(names[1], scales)
    for name, one, wanted, kind in zip(names, found, (x.shape, shape), (FLOAT8_E4M3, FLOAT32)):
        element_type(name, one, kind)
        if one.shape != wanted:
            raise InvalidArgument(f"{name} has the shape {one.shape}, but x is {x.shape}: it must be "
                                  f"{wanted}")
        if one.place != x.place:
            raise InvalidArgument(f"{name} is on another device than x; move one")
        if not one.writable:
            raise InvalidArgument(f"{name} is read-only; give a writable array")
    if x.place != HOST:  # others may still work on them
        for name, one in zip(names, (values, scales)):
            operand(name, one, stream=stream)
    return found
