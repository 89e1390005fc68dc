"""gemm and fp8_gemm_nt: they plan once for each shape and weight, then only launch."""

import ctypes
import sys
from ctypes import byref, c_size_t, c_uint64

from culet._call import call, current_stream
from culet._engine import engine
from culet._library import LIBRARY, PACK_PANELS64, InvalidArgument, Matrix, check
from culet._operand import HOST, Packed, element_type, flag, matrix, operand, transposed
from culet._problem import ANY, FP8_BLOCK, operands, problem


def gemm(a, b, out=None, *, a_scale=None, b_scale=None, c=None, bias=None, alpha=1, beta=0,
         accumulate="precise", epilogue=None, out_scale=None, out_dtype=None, pdl=False):
    """out = alpha (a_scale . a) (b_scale . b)^T + beta c + bias; returns out.

    Shapes: a (M, K), b (N, K), out and c (M, N), bias (N,).
    Batches: a (B, M, K), b (B, N, K), out (B, M, N), with scales that have an axis B more. One of a,
    b and c may be a single matrix, (N, K) or (1, N, K) for b, that all share; the bias is.
    b: a plain weight, or one that culet.pack made.
    Scales, by their shapes: one number or element for the whole operand; (M,) or (M, 1) and (N,) or
    (1, N), one a row; (M, ceil(K / 128)) and (ceil(N / 128), ceil(K / 128)), one a block. Blocks go
    with blocks. A shape that could be several is read so that both operands have one format.
    Types: a and b E4M3, BF16, F16 or FP32; scales FP32; out, c and bias BF16, F16 or FP32. torch
    tensors of one device, or host arrays: numpy, ml_dtypes, or buffers that hold the bits as uint8
    (E4M3) and uint16 (BF16). Not every mixture has a kernel; explain() says why not.
    Layout: rows or columns contiguous, any leading dimension.
    out: made when None, of out_dtype; that is BF16 for E4M3 operands, else the type of a, by default.
    c: needs a beta; without c a beta adds to what out holds.
    accumulate: "precise" promotes to FP32 within K where the tensor core keeps fewer bits; "fast"
    does not (docs/numerics.md has both bounds).
    epilogue: "gated_silu" gives silu(gate) * up, out (M, N / 2): of 16 rows of b (and elements of
    the bias) eight are of gate, then the eight of up that belong to them. With out_scale, FP32
    (M, ceil(N / 2 / 128)), it quantises, too: out is E4M3, each 128 elements of a row with a scale.
    pdl: promises that the kernel before on the stream writes neither b nor its scales, which may be
    read early.
    Async: on torch's current stream; on the CPU complete on return. The first call for a shape, its
    strides and a weight plans; later calls only launch, and CUDA graphs can capture them.
    Raises: InvalidArgument (a ValueError) and Error, with the argument, its value and the way out.
    """
    if pdl is not False and pdl is not True:
        pdl = flag("pdl", pdl)
    if accumulate != "precise" and accumulate != "fast":
        raise InvalidArgument(f"accumulate is {accumulate!r}; give 'precise' or 'fast'")
    if type(alpha) is not float:
        alpha = _number("alpha", alpha)
    if type(beta) is not float:
        beta = _number("beta", beta)
    if c is not None and not beta:
        raise InvalidArgument("c is given, but beta is 0, which does not read it; give a beta, or "
                              "leave c out")
    if isinstance(a_scale, (int, float)):
        alpha, a_scale = alpha * a_scale, None
    if isinstance(b_scale, (int, float)):
        alpha, b_scale = alpha * b_scale, None
    if epilogue is not None or out_scale is not None:
        _check_epilogue(epilogue, out_scale)
    if out is None or out_dtype is not None:
        out = _output(a, b, out, beta and c is None, out_dtype, epilogue, out_scale)
    call(ANY, a, a_scale, b, b_scale, out, c, bias, alpha, beta, accumulate, pdl, epilogue, out_scale)
    return out


def pack(weight, format="k_major_n64"):
    """A weight (N, K) in the order of memory that some kernels read best, as a Packed: give it to gemm
    or fp8_gemm_nt as b, with b's scales as before. It lies where the weight does, and does not
    change with it; the weight itself is not needed any more.

    format: "k_major_n64" has panels of 64 rows of the weight, each row of k of a panel contiguous;
    FP32, F16, BF16 and E4M3. explain() compares what kernels make of both.
    Async: on torch's current stream.
    Raises: InvalidArgument and Error.
    """
    number = _PACK_FORMATS.get(format) if isinstance(format, str) else None
    if number is None:
        raise InvalidArgument(f"format is {format!r}; give {' or '.join(map(repr, _PACK_FORMATS))}")
    found = operand("weight", weight)
    code = element_type("weight", found, *ANY.elements)
    if 0 in found.shape:
        raise InvalidArgument(f"weight has the shape {found.shape}; there is nothing to pack")
    layout = transposed(matrix("weight", found, code))
    owner, size, packed = engine(found.place), c_uint64(), Matrix()
    check(LIBRARY.culet_packed_bytes(owner.handle, byref(layout), number, byref(size)))
    memory, pointer = owner.workspaces.allocate(size.value)
    stream = None if found.place == HOST else current_stream(found.place)
    check(LIBRARY.culet_pack(owner.handle, found.pointer, byref(layout), number, pointer, size, stream,
                             byref(packed)))
    return Packed(memory, pointer, found.dtype, found.shape, found.place, number, format)


_PACK_FORMATS = {"k_major_n64": PACK_PANELS64}


def _check_epilogue(epilogue, out_scale):
    if epilogue not in (None, "gated_silu"):
        raise InvalidArgument(f"epilogue is {epilogue!r}; give None or 'gated_silu'")
    if out_scale is not None and epilogue is None:
        raise InvalidArgument("out_scale is given, but no epilogue quantises; give epilogue="
                              "'gated_silu', or leave it out")


def fp8_gemm_nt(a, b, d, *, pdl=False):
    """d = (a_scales . a) (b_scales . b)^T: block-scaled FP8 in, BF16 out.

    Shapes: a = (values (M, K), scales (M, ceil(K / 128))), b = (values (N, K), scales
    (ceil(N / 128), ceil(K / 128))), d (M, N).
    Types: values E4M3, scales FP32, d BF16 (or FP32, where a kernel writes it). torch tensors of one
    device, or host arrays: numpy, ml_dtypes, or buffers that hold the bits as uint8 and uint16.
    Layout: rows of a, b and d contiguous, any leading dimension; scales in either order.
    The rest is as in gemm.
    """
    try:
        (av, au), (bv, bu) = a, b
    except (TypeError, ValueError):
        raise _no_pairs("fp8_gemm_nt") from None
    if pdl is not False and pdl is not True:
        pdl = flag("pdl", pdl)
    call(FP8_BLOCK, av, au, bv, bu, d, None, None, 1.0, 0.0, "precise", pdl)


def explain(a, b, out, *, pdl=False, **options):
    """Which kernel gemm(a, b, out, ...), or fp8_gemm_nt(a, b, out) where a and b are pairs, takes,
    its predicted and measured time, its share of the roofline, and for every other kernel why not.
    Launches nothing. options: a_scale, b_scale, c, bias, beta, accumulate, epilogue and out_scale, as
    in gemm."""
    pdl = flag("pdl", pdl)
    if isinstance(a, (tuple, list)) or isinstance(b, (tuple, list)):
        try:
            (av, au), (bv, bu) = a, b
        except (TypeError, ValueError):
            raise _no_pairs("explain") from None
        if options:
            raise InvalidArgument(f"explain of pairs takes no {', '.join(options)}")
        return _explained(FP8_BLOCK, (av, au, bv, bu, out, None, None, None), 0, "precise", pdl)
    known = ("a_scale", "b_scale", "c", "bias", "beta", "accumulate", "epilogue", "out_scale")
    if unknown := [name for name in options if name not in known]:
        raise InvalidArgument(f"explain takes no {', '.join(unknown)}; its options are "
                              f"{', '.join(known)} and pdl")
    scales = [None if isinstance(scale, (int, float)) else scale
              for scale in (options.get("a_scale"), options.get("b_scale"))]
    accumulate, beta = options.get("accumulate", "precise"), _number("beta", options.get("beta", 0))
    if accumulate not in ("precise", "fast"):
        raise InvalidArgument(f"accumulate is {accumulate!r}; give 'precise' or 'fast'")
    epilogue, out_scale = options.get("epilogue"), options.get("out_scale")
    _check_epilogue(epilogue, out_scale)
    return _explained(ANY, (a, scales[0], b, scales[1], out, options.get("c") if beta else None,
                            options.get("bias"), out_scale), beta, accumulate, pdl, epilogue)


def _explained(form, values, beta, accumulate, pdl, epilogue=None):
    found = operands(form, values)
    made = problem(form, found, beta, accumulate, pdl, epilogue)
    if made is None:
        return f"{form.names[4]} has the shape {found[4].shape}: nothing to compute"
    owner, needed = engine(found[0].place), c_size_t()
    check(LIBRARY.culet_explain(owner.handle, byref(made), None, 0, byref(needed)))
    text = ctypes.create_string_buffer(needed.value)
    check(LIBRARY.culet_explain(owner.handle, byref(made), text, needed, None))
    return text.value.decode()


def _no_pairs(function):
    return InvalidArgument(
        f"a and b must be pairs (values, scales); give {function}((a, a_scales), (b, b_scales), d)")


def _number(name, value):
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        raise InvalidArgument(f"{name} is {value!r}; give a number") from None


def _dtype_name(dtype):
    """"bfloat16" for torch.bfloat16, numpy.dtype, a scalar type or the name itself."""
    name = dtype.__name__ if isinstance(dtype, type) else str(dtype)
    return name.removeprefix("torch.")


def _output(a, b, out, adds, out_dtype, epilogue, out_scale):
    """out, whose type must be out_dtype; or a new one of that type."""
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
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(a, torch.Tensor):
        kind = getattr(torch, name, None)
        if isinstance(kind, torch.dtype):
            return torch.empty(shape, dtype=kind, device=a.device)
    elif (numpy := sys.modules.get("numpy")) is not None and isinstance(a, numpy.ndarray):
        try:  # by its name, which ml_dtypes registers
            return numpy.empty(shape, dtype=name)
        except TypeError:
            pass
    else:
        raise InvalidArgument(f"out is None, and a is a {type(a).__name__}; give an out")
    raise InvalidArgument(f"out_dtype is {out_dtype!r}; give bfloat16, float16 or float32")
