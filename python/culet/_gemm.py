"""gemm and fp8_gemm_nt, which plan once for each shape and weight, then only launch; plan, explain, pack."""

import ctypes
import sys
from ctypes import byref, c_size_t, c_uint64
from typing import Any, Optional, Tuple, Union

from culet._call import call
from culet._engine import engine
from culet._library import LIBRARY, PACK_PANELS64, InvalidArgument, Matrix, check, shown, text
from culet._make import maker
from culet._operand import (MOST, Packed, element_type, flag, is_tensor, matrix, operand, ordered,
                            transposed)
from culet._plan import LARGEST, Plan, fits, number
from culet._problem import ANY, FP8_BLOCK, GATE_ORDERS, operands, problem


Array = Any  # a torch tensor, or what else an operand can be


def gemm(a: Array, b: Union[Array, Packed], out: Optional[Array] = None, *, a_scale: Union[Array, float, None] = None,
         b_scale: Union[Array, float, None] = None, c: Optional[Array] = None,
         bias: Optional[Array] = None, alpha: float = 1.0, beta: float = 0.0, accumulate: str = "precise",
         epilogue: Optional[str] = None, out_scale: Optional[Array] = None, out_dtype: Any = None,
         pdl: bool = False, a_zero: Optional[Array] = None, b_zero: Optional[Array] = None) -> Array:
    """out = alpha (a_scale . a) (b_scale . b)^T + beta c + bias; returns out.

    Shapes: a (M, K), b (N, K), out and c (M, N), bias (N,).
    Batches: a (B, M, K), b (B, N, K), out (B, M, N), with scales that have an axis B more. One of a,
    b and c may be a single matrix, (N, K) or (1, N, K) for b, that all share; the bias is.
    b: a plain weight, or one that culet.pack made; of "u4", b_scale and b_zero have the shape (N, K / group),
    F32, F16 or BF16.
    Scales, by their shapes: one number or element for the whole operand; (M,) or (M, 1) and (N,) or
    (1, N), one a row; (M, ceil(K / 128)) and (ceil(N / 128), ceil(K / 128)), one a block, or with the former
    (N, ceil(K / 128)), one for 128 of a row. Blocks go with blocks. A shape that could be several is read so that both operands have one format.
    Types: a and b E4M3, BF16, F16 or FP32; scales FP32; out, c and bias BF16, F16 or FP32. torch
    tensors of one device, or host arrays: numpy, ml_dtypes, or buffers that hold the bits as uint8
    (E4M3) and uint16 (BF16). Not every mixture has a kernel; explain() says why not.
    Layout: rows or columns contiguous, any leading dimension.
    out: made when None, of out_dtype; that is BF16 for E4M3 operands, else the type of a, by default.
    a_zero, b_zero: zero points, which are taken from a and b before they are scaled; of the shape and
    layout of their scales, FP32, F16 or BF16.
    c: needs a beta; without c a beta adds to what out holds.
    accumulate: "precise" promotes to FP32 within K where the tensor core keeps fewer bits; "fast"
    does not; "full" takes kernels that keep 24 bits throughout, which are slower where there are
    faster ones (docs/numerics.md has the bounds).
    epilogue: "gated_silu" gives silu(gate) * up, out (M, N / 2): of 16 rows of b (and columns of c and
    elements of the bias) eight are of gate, then the eight of up that belong to them.
    "gated_silu_halves": the same where the first half of b's rows is gate's, the second up's, as two
    weights one behind the other. N % 16 == 0. With out_scale, FP32 (M, ceil(N / 2 / 128)), either
    quantises, too: out is E4M3, each 128 elements of a row with a scale.
    pdl: promises that the kernel before on the stream writes neither b nor its scales, which may be
    read early.
    No gradient is recorded.
    Async: on torch's current stream; on the CPU complete on return. The first call for a shape, its
    strides and a weight plans; later calls only launch, and CUDA graphs can capture them.
    Raises: InvalidArgument (a ValueError) and Error, with the argument, its value and the way out.
    """
    (out, *rest) = _arguments(a, b, out, a_scale, b_scale, c, bias, alpha, beta, accumulate, epilogue,
                              out_scale, out_dtype, pdl, a_zero, b_zero)
    call(ANY, *rest)
    return out


def plan(a: Any, b: Any, out: Optional[Array] = None, *, a_scale: Union[Array, float, None] = None,
         b_scale: Union[Array, float, None] = None, c: Optional[Array] = None,
         bias: Optional[Array] = None, alpha: float = 1.0, beta: float = 0.0, accumulate: str = "precise",
         epilogue: Optional[str] = None, out_scale: Optional[Array] = None, out_dtype: Any = None,
         pdl: bool = False, a_zero: Optional[Array] = None, b_zero: Optional[Array] = None) -> Plan:
    """gemm(a, b, out, ...), prepared and not launched yet: a Plan, whose call launches it, at less cost
    than gemm's, which looks its plan up each time.

        step = culet.plan(x, weight, y)
        step()                # y = x weight^T
        step(other_x, other_y)

    The arguments are gemm's; a and b as pairs (values, scales), with out alone, are those of fp8_gemm_nt.
    What is bound: b, its scales, the bias, zero points and out_scale; a, a_scale, c and out may be others
    of the same shape, strides and type at each call. Inside `with autotune` the problem is measured first.
    Raises: InvalidArgument and Error, as gemm; FAILED_PRECONDITION inside a graph capture.
    """
    if isinstance(a, (tuple, list)) or isinstance(b, (tuple, list)):
        if out is None:
            raise InvalidArgument("out is None; give one where a and b are pairs")
        (av, au), (bv, bu) = _pairs("plan", a, b)
        plain = gemm.__kwdefaults__
        given = {"a_scale": a_scale, "b_scale": b_scale, "c": c, "bias": bias, "alpha": alpha,
                 "beta": beta, "accumulate": accumulate, "epilogue": epilogue, "out_scale": out_scale,
                 "out_dtype": out_dtype, "a_zero": a_zero, "b_zero": b_zero}
        if wrong := [name for name, value in given.items() if value is not plain[name]]:
            raise InvalidArgument(f"plan of pairs takes no {', '.join(wrong)}")
        return Plan(FP8_BLOCK, av, au, bv, bu, out, None, None, 1.0, 0.0, "precise", flag("pdl", pdl))
    (_, *rest) = _arguments(a, b, out, a_scale, b_scale, c, bias, alpha, beta, accumulate, epilogue,
                            out_scale, out_dtype, pdl, a_zero, b_zero)
    return Plan(ANY, *rest)


def _arguments(a, b, out, a_scale, b_scale, c, bias, alpha, beta, accumulate, epilogue, out_scale,
               out_dtype, pdl, a_zero, b_zero):
    """out, made where it is None, and what call takes behind the form."""
    if pdl is not False and pdl is not True:
        pdl = flag("pdl", pdl)
    if not isinstance(accumulate, str) or accumulate not in ("precise", "fast", "full"):
        raise InvalidArgument(f"accumulate is {shown(accumulate)}; give 'precise', 'fast' or 'full'")
    if type(alpha) is not float or not -LARGEST < alpha < LARGEST:
        alpha = number("alpha", alpha)
    if type(beta) is not float or not -LARGEST < beta < LARGEST:
        beta = number("beta", beta)
    if c is not None and not beta:
        raise InvalidArgument("c is given, but beta is 0, which does not read it; give a beta, or "
                              "leave c out")
    if isinstance(a_scale, (int, float)):
        alpha, a_scale = fits("alpha times a_scale", alpha * number("a_scale", a_scale)), None
    if isinstance(b_scale, (int, float)):
        alpha, b_scale = fits("alpha times b_scale", alpha * number("b_scale", b_scale)), None
    if epilogue is not None or out_scale is not None:
        _check_epilogue(epilogue, out_scale)
    if out is None or out_dtype is not None:
        out = _output(a, b, out, beta and c is None, out_dtype, epilogue, out_scale)
    zeros = None if a_zero is None and b_zero is None else (a_zero, b_zero)
    return (out, a, a_scale, b, b_scale, out, c, bias, alpha, beta, accumulate, pdl, epilogue, out_scale,
            zeros)


def pack(weight: Array, format: str = "k_major_n64") -> Packed:
    """A weight (N, K) in the order of memory that some kernels read best, or of 4 bits, as a Packed: give it to
    gemm or fp8_gemm_nt as b, with b's scales as before. It lies where the weight does.

    format: "k_major_n64" has panels of 64 rows of the weight, each row of k of a panel contiguous;
    FP32, F16, BF16 and E4M3. It does not change with the weight, which is not needed any more. explain()
    compares what kernels make of both.
    "u4": the weight holds codes 0 to 15, (N, K / 2) uint8 with the code of an even k in the lower half of a
    byte, or (N, K / 8) int32 with the first of eight in the lowest bits. Their memory is shared: leave it as it is.
    Async: on torch's current stream.
    Raises: InvalidArgument and Error.
    """
    if isinstance(format, str) and format == _CODES:
        return _codes(weight)
    number = _PACK_FORMATS.get(format) if isinstance(format, str) else None
    if number is None:
        raise InvalidArgument(f"format is {shown(format)}; give {' or '.join(map(repr, (*_PACK_FORMATS, _CODES)))}")
    found, stream = ordered("weight", weight)
    code = element_type("weight", found, *ANY.elements)
    if 0 in found.shape:
        raise InvalidArgument(f"weight has the shape {found.shape}; there is nothing to pack")
    layout = transposed(matrix("weight", found, code))
    owner, size, packed = engine(found.place), c_uint64(), Matrix()
    check(LIBRARY.culet_packed_bytes(owner.handle, byref(layout), number, byref(size)))
    memory, pointer = owner.workspaces.allocate(size.value)
    check(LIBRARY.culet_pack(owner.handle, found.pointer, byref(layout), number, pointer, size, stream,
                             byref(packed)))
    return Packed(memory, pointer, found.dtype, found.shape, found.place, number, format)


_PACK_FORMATS = {"k_major_n64": PACK_PANELS64}
_CODES = "u4"
_CODES_OF = {"uint8": 2, "int8": 2, "int32": 8}


def _codes(weight):
    found, _ = ordered("weight", weight)
    (rows, columns), strides = found.shape, found.strides
    codes = _CODES_OF.get(found.dtype)
    if codes is None:
        raise InvalidArgument(f"weight holds {found.dtype}; of '{_CODES}' it must hold uint8, two codes each, or int32, "
                              "eight")
    if 0 in found.shape:
        raise InvalidArgument(f"weight has the shape {found.shape}; there is nothing to pack")
    if columns * codes > MOST:
        raise InvalidArgument(f"weight has the shape {found.shape}, {codes} codes each; give at most {MOST} a row")
    if (columns > 1 and strides[1] != 1) or (rows > 1 and strides[0] != columns):
        raise InvalidArgument(f"weight of shape {found.shape} has the strides {strides}; codes must be contiguous: "
                              "pass a contiguous copy")
    return Packed(weight, found.pointer, "uint4", (rows, columns * codes), found.place, 0, _CODES)


_GATED = " or ".join(map(repr, GATE_ORDERS))


def _check_epilogue(epilogue, out_scale):
    if epilogue is not None and not (isinstance(epilogue, str) and epilogue in GATE_ORDERS):
        raise InvalidArgument(f"epilogue is {shown(epilogue)}; give None, {_GATED}")
    if out_scale is not None and epilogue is None:
        raise InvalidArgument("out_scale is given, but no epilogue quantises; give the epilogue "
                              f"{_GATED}, or leave it out")


def fp8_gemm_nt(a: Tuple[Array, Array], b: Tuple[Union[Array, Packed], Array], d: Array, *,
                pdl: bool = False) -> None:
    """d = (a_scales . a) (b_scales . b)^T: block-scaled FP8 in, BF16 out.

    Shapes: a = (values (M, K), scales (M, ceil(K / 128))), b = (values (N, K), scales
    (ceil(N / 128), ceil(K / 128))), d (M, N).
    Types: values E4M3, scales FP32, d BF16 (or FP32, where a kernel writes it). torch tensors of one
    device, or host arrays: numpy, ml_dtypes, or buffers that hold the bits as uint8 and uint16.
    Layout: rows of a, b and d contiguous, any leading dimension; scales in either order.
    The rest is as in gemm.
    """
    (av, au), (bv, bu) = _pairs("fp8_gemm_nt", a, b)
    if pdl is not False and pdl is not True:
        pdl = flag("pdl", pdl)
    call(FP8_BLOCK, av, au, bv, bu, d, None, None, 1.0, 0.0, "precise", pdl)


def explain(a: Any, b: Any, out: Optional[Array] = None, *, pdl: bool = False, **options: Any) -> str:
    """Which kernel gemm(a, b, out, ...), or fp8_gemm_nt(a, b, out) where a and b are pairs, takes,
    its predicted and measured time, its share of the roofline, and for every other kernel why not.
    Launches nothing. options: gemm's."""
    if isinstance(a, (tuple, list)) or isinstance(b, (tuple, list)):
        (av, au), (bv, bu) = _pairs("explain", a, b)
        if options:
            raise InvalidArgument(f"explain of pairs takes no {', '.join(options)}")
        return _explained(FP8_BLOCK, (av, au, bv, bu, out, *[None] * 5), 0, "precise", flag("pdl", pdl))
    known = [name for name in gemm.__kwdefaults__ if name != "pdl"]
    if unknown := [name for name in options if name not in known]:
        raise InvalidArgument(f"explain takes no {', '.join(unknown)}; its options are "
                              f"{', '.join(known)} and pdl")
    options = {**gemm.__kwdefaults__, **options, "pdl": pdl}
    _, a, u, b, v, d, c, bias, _, beta, accumulate, pdl, epilogue, w, zeros = _arguments(
        a, b, out, **options)
    return _explained(ANY, (a, u, b, v, d, c if beta else None, bias, w, *(zeros or (None, None))), beta,
                      accumulate, pdl, epilogue)


def _explained(form, values, beta, accumulate, pdl, epilogue=None):
    found = operands(form, values)
    made = problem(form, found, beta, accumulate, pdl, epilogue)
    if made is None:
        return f"{form.names[4]} has the shape {found[4].shape}: nothing to compute"
    owner, needed = engine(found[0].place), c_size_t()
    check(LIBRARY.culet_explain(owner.handle, byref(made), None, 0, byref(needed)))
    explained = ctypes.create_string_buffer(needed.value)
    check(LIBRARY.culet_explain(owner.handle, byref(made), explained, needed, None))
    return text(explained.value)


def _pairs(function, a, b):
    try:
        (av, au), (bv, bu) = a, b
    except (TypeError, ValueError):
        raise InvalidArgument(f"a and b must be pairs (values, scales); give {function}((a, a_scales), "
                              "(b, b_scales), d)") from None
    return (av, au), (bv, bu)


def _dtype_name(dtype):
    """"bfloat16" for torch.bfloat16, numpy.dtype, a scalar type or the name itself."""
    name = dtype.__name__ if isinstance(dtype, type) else str(dtype)
    return name.removeprefix("torch.")


def _plain_output(a, b):
    """What gemm makes of two torch matrices when nothing else is asked for, by the shortest way; None of
    others."""
    if not is_tensor(a):
        return None
    torch, kind = sys.modules["torch"], a.dtype
    if kind not in (torch.bfloat16, torch.float16, torch.float32):
        return None
    try:
        (m, _), (n, _) = a.shape, b.shape
    except (AttributeError, TypeError, ValueError):
        return None
    return torch.empty_strided((m, n), (n, 1), dtype=kind, device=a.device)  # cheaper with strides


def _output(a, b, out, adds, out_dtype, epilogue, out_scale):
    """out, whose type must be out_dtype; or a new one of that type."""
    if out is out_dtype is epilogue is out_scale is None and not adds:
        found = _plain_output(a, b)
        if found is not None:
            return found
    name = None if out_dtype is None else _dtype_name(out_dtype)
    if out is not None:
        found = operand("out", out, (2, 3))
        if found.dtype != name:
            raise InvalidArgument(f"out holds {found.dtype}, but out_dtype is {name}; leave one out")
        return out
    if adds:
        raise InvalidArgument("beta is given, but neither c nor out, to which it could add; give one")
    first, second = operand("a", a, (2, 3)), operand("b", b, (2, 3))
    batch = max(first.shape[:-2], second.shape[:-2])
    n = second.shape[-2]
    shape = *batch, first.shape[-2], n // 2 if epilogue else n
    if name is None and out_scale is not None:
        name = "float8_e4m3fn"
    if name is None:
        name = {"float8_e4m3fn": "bfloat16", "uint8": "uint16"}.get(first.dtype, first.dtype)
    if out_dtype is None:
        element_type("a", first, *ANY.elements)
    if name not in ("bfloat16", "float16", "float32", "float8_e4m3fn", "uint8", "uint16"):
        raise InvalidArgument(f"out_dtype is {shown(out_dtype)}; give bfloat16, float16 or float32")
    return maker("a", a)(shape, name)
