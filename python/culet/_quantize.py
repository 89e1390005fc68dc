"""quantize_fp8: E4M3 values and FP32 scales of an array."""

from contextlib import nullcontext
from ctypes import byref

from culet import _driver
from culet._engine import engine
from culet._library import (BFLOAT16, FLOAT16, FLOAT32, FLOAT8_E4M3, LIBRARY, QUANT_B, QUANT_K,
                            QUANT_ROW, QUANT_TENSOR, InvalidArgument, check)
from culet._make import maker
from culet._operand import HOST, element_type, matrix, operand, ordered

GROUP = 128
_GRANULARITIES = {"group": QUANT_K, "block": QUANT_B, "row": QUANT_ROW, "tensor": QUANT_TENSOR}


def quantize_fp8(x, granularity="group", out=None):
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
    if quant is None:
        raise InvalidArgument(f"granularity is {granularity!r}; give "
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
    values, scales = _checked(out, found, shape)
    if m == 0 or k == 0:
        return out
    arguments = (engine(found.place).handle, quant, GROUP if quant in (QUANT_K, QUANT_B) else 0,
                 found.pointer, byref(matrix("x", found, code)), values.pointer,
                 byref(matrix("values", values, FLOAT8_E4M3)), scales.pointer,
                 byref(matrix("scales", scales, FLOAT32)), stream)
    with nullcontext() if found.place == HOST else _driver.current(found.place):
        check(LIBRARY.culet_quantize(*arguments))
    return out


def _checked(out, x, shape):
    """The operands of the pair to write to."""
    try:
        values, scales = out
    except (TypeError, ValueError):
        raise InvalidArgument(f"out is a {type(out).__name__}; give a pair (values, scales)") from None
    found = operand("out's values", values), operand("out's scales", scales)
    for name, one, wanted, kind in zip(("out's values", "out's scales"), found, (x.shape, shape),
                                       (FLOAT8_E4M3, FLOAT32)):
        element_type(name, one, kind)
        if one.shape != wanted:
            raise InvalidArgument(f"{name} has the shape {one.shape}, but x is {x.shape}: it must be "
                                  f"{wanted}")
        if one.place != x.place:
            raise InvalidArgument(f"{name} is on another device than x; move one")
        if not one.writable:
            raise InvalidArgument(f"{name} is read-only; give a writable array")
    return found
