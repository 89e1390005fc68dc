"""quantize_fp8: E4M3 values and FP32 scales of an array."""

import sys
from ctypes import byref

from culet._call import current_stream
from culet._engine import engine
from culet._library import (BFLOAT16, FLOAT16, FLOAT32, FLOAT8_E4M3, LIBRARY, QUANT_B, QUANT_K,
                            QUANT_ROW, QUANT_TENSOR, InvalidArgument, check)
from culet._operand import HOST, element_type, matrix, operand

GROUP = 128
_GRANULARITIES = {"group": QUANT_K, "block": QUANT_B, "row": QUANT_ROW, "tensor": QUANT_TENSOR}


def quantize_fp8(x, granularity="group"):
    """(values, scales) with x = scales . values, as gemm and fp8_gemm_nt take them.

    Shapes: x (M, K); values (M, K) E4M3; scales FP32 by granularity: "group" (M, ceil(K / 128)), as
    of activations; "block" (ceil(M / 128), ceil(K / 128)), as of weights; "row" (M, 1); "tensor"
    (1, 1).
    Numerics: a scale is amax / 448 of what shares it, 1 where all is 0; values are rounded to nearest
    even.
    Types: x BF16, F16 or FP32, a torch tensor or a numpy array with contiguous rows or columns; the
    results are alike (numpy's values need ml_dtypes). On a GPU BF16 with contiguous rows, by group.
    Async: on torch's current stream, which may be captured.
    Raises: InvalidArgument and Error.
    """
    quant = _GRANULARITIES.get(granularity) if isinstance(granularity, str) else None
    if quant is None:
        raise InvalidArgument(f"granularity is {granularity!r}; give "
                              f"{' or '.join(map(repr, _GRANULARITIES))}")
    found = operand("x", x)
    code = element_type("x", found, BFLOAT16, FLOAT16, FLOAT32)
    (m, k), groups = found.shape, -(-found.shape[1] // GROUP)
    shape = {QUANT_K: (m, groups), QUANT_B: (-(-m // GROUP), groups), QUANT_ROW: (m, 1),
             QUANT_TENSOR: (1, 1)}[quant]
    empty = _maker(x)
    values, scales = empty((m, k), "float8_e4m3fn"), empty(shape, "float32")
    if m == 0 or k == 0:
        scales[...] = 1
        return values, scales
    to, out = operand("values", values), operand("scales", scales)
    arguments = (engine(found.place).handle, quant, GROUP if quant in (QUANT_K, QUANT_B) else 0,
                 found.pointer, byref(matrix("x", found, code)), to.pointer,
                 byref(matrix("values", to, FLOAT8_E4M3)), out.pointer,
                 byref(matrix("scales", out, FLOAT32)))
    if found.place == HOST:
        check(LIBRARY.culet_quantize(*arguments, None))
    else:
        with sys.modules["torch"].cuda.device(found.place):
            check(LIBRARY.culet_quantize(*arguments, current_stream(found.place)))
    return values, scales


def _maker(x):
    """What makes an array of a shape and a type's name, of x's kind and where x is."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        return lambda shape, name: torch.empty(shape, dtype=getattr(torch, name), device=x.device)
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(x, numpy.ndarray):
        raise InvalidArgument(f"x is a {type(x).__name__}; give a torch tensor or a numpy array")
    try:
        import ml_dtypes
    except ImportError:
        raise InvalidArgument("numpy has no E4M3 of its own, and ml_dtypes is not installed; install "
                              "it, or give a torch tensor") from None
    return lambda shape, name: numpy.empty(shape, dtype=getattr(ml_dtypes, name, name))
