"""fp8_gemm_nt: plans once for each shape and weight, then only launches."""

import ctypes
import sys
from ctypes import byref, c_size_t
from typing import NamedTuple

from culet import _library
from culet._engine import Plan, engine
from culet._library import LIBRARY, Error, InvalidArgument, check
from culet._operand import HOST, Operand, element_type, flag, matrix, operand, transposed
from culet._plans import PLANS, keep
from culet._tuning import autotune

GROUP = 128  # values that share a scale: 1 x 128 of a, 128 x 128 of b
_launch = LIBRARY.culet_launch


def fp8_gemm_nt(a, b, d, *, pdl=False):
    """d = (a_scales . a) (b_scales . b)^T: block-scaled FP8 in, BF16 out.

    Shapes: a = (values (M, K), scales (M, ceil(K / 128))), b = (values (N, K), scales
    (ceil(N / 128), ceil(K / 128))), d (M, N).
    Types: values E4M3, scales FP32, d BF16 (or FP32, where a kernel writes it). torch tensors of one
    device, or host arrays: numpy, ml_dtypes, or buffers that hold the bits as uint8 and uint16.
    Layout: rows of a, b and d contiguous, any leading dimension; scales in either order.
    pdl: promises that the kernel before on the stream does not write b; it may be read early.
    Async: on torch's current stream; on the CPU complete on return. The first call for a shape, its
    strides and a weight plans (some 50 us); later calls only launch: nothing is allocated, nothing
    waits, and CUDA graphs can capture them.
    Raises: InvalidArgument (a ValueError) and Error, with the argument, its value and the way out.
    """
    try:
        (av, au), (bv, bu) = a, b
    except (TypeError, ValueError):
        raise _no_pairs("fp8_gemm_nt") from None
    if pdl is not False and pdl is not True:
        pdl = flag("pdl", pdl)
    try:
        pa, pu, pd = av.data_ptr(), au.data_ptr(), d.data_ptr()
        place = d.get_device()
        pb, pv = bv.data_ptr(), bu.data_ptr()
        key = (pb, pv, pdl, place, (pa | pu | pd) & 15 and (pa & 15, pu & 15, pd & 15),
               av.shape, av.stride(), av.dtype, av.get_device(),
               au.shape, au.stride(), au.dtype, au.get_device(),
               bv.shape, bv.stride(), bv.dtype, bu.shape, bu.stride(), bu.dtype,
               d.shape, d.stride(), d.dtype)
    except AttributeError:
        key = None
    if key is None:
        return _host_call(av, au, bv, bu, d, pdl)
    plan = PLANS.get(key)
    if plan is None or (autotune.running and autotune.wants(plan)):
        plan = _plan(key, (av, au, bv, bu, d), pdl)
        if plan is None:
            return None
    else:
        plan.used = True
    stream = None if place < 0 else _current_stream(place)
    workspace = plan.workspace and plan.engine.workspaces.get(plan.workspace, stream)
    status = _launch(plan.handle, pa, pu, None, pd, 1.0, 0.0, workspace, stream)
    if status:
        check(status)
    return None


def _host_call(av, au, bv, bu, d, pdl):
    try:
        ia, iu, ib, iv, io = (av.__array_interface__, au.__array_interface__,
                              bv.__array_interface__, bu.__array_interface__, d.__array_interface__)
        pa, pu, pd = ia["data"][0], iu["data"][0], io["data"][0]
        key = (ib["data"], iv["data"], pdl, io["data"][1],
               (pa | pu | pd) & 15 and (pa & 15, pu & 15, pd & 15),
               ia["shape"], ia["strides"], ia["typestr"], av.dtype,
               iu["shape"], iu["strides"], iu["typestr"], au.dtype,
               ib["shape"], ib["strides"], ib["typestr"], bv.dtype,
               iv["shape"], iv["strides"], iv["typestr"], bu.dtype,
               io["shape"], io["strides"], io["typestr"], d.dtype)
        operands = av, au, bv, bu, d
        plan = PLANS.get(key)
    except (AttributeError, LookupError, TypeError):  # less than numpy shows, or nothing at all
        key = None
    if key is None:
        operands = _operands((av, au, bv, bu, d))
        key = (pdl, *(x if x is operands[2] or x is operands[3]
                      else x._replace(pointer=x.pointer & 15) for x in operands))
        pa, pu, pd = (operands[i].pointer for i in (0, 1, 4))
        plan = PLANS.get(key)
    if plan is None or (autotune.running and autotune.wants(plan)):
        plan = _plan(key, operands, pdl)
        if plan is None:
            return
    else:
        plan.used = True
    workspace = plan.workspace and plan.engine.workspaces.get(plan.workspace, None)
    status = _launch(plan.handle, pa, pu, None, pd, 1.0, 0.0, workspace, None)
    if status:
        check(status)


def _no_pairs(function):
    return InvalidArgument(
        f"a and b must be pairs (values, scales); give {function}((a, a_scales), (b, b_scales), d)")


def _current_stream(place):
    """torch's current stream of a CUDA device as a number, by its shortest way."""
    torch = sys.modules["torch"]
    global _current_stream
    _current_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None) or (
        lambda device: torch.cuda.current_stream(device).cuda_stream)
    return _current_stream(place)


def _operands(values):
    names = ("a's values", "a's scales", "b's values", "b's scales", "d")
    return tuple(
        value if isinstance(value, Operand) else operand(name, value)
        for name, value in zip(names, values))


def _check_shapes(a, u, b, v, d):
    (m, k), n = a.shape, b.shape[0]
    groups = -(-k // GROUP)
    expected = (
        ("a's scales", u, (m, groups), f"a's values are {a.shape}"),
        ("b's values", b, (n, k), f"a's values are {a.shape}"),
        ("b's scales", v, (-(-n // GROUP), groups), f"b's values are {b.shape}"),
        ("d", d, (m, n), f"a and b have {m} and {n} rows"),
    )
    for name, found, shape, reason in expected:
        if found.shape != shape:
            raise InvalidArgument(f"{name} has the shape {found.shape}, but {reason}: it must be "
                                  f"{shape}")
    for name, found, _, _ in expected:
        if found.place != a.place:
            where = ["the CPU" if place == HOST else f"cuda:{place}"
                     for place in (found.place, a.place)]
            raise InvalidArgument(f"{name} is on {where[0]}, a's values are on {where[1]}; move one")


def _problem(operands, pdl):
    """The culet_problem, or None when d is empty."""
    a, u, b, v, d = operands
    _check_shapes(a, u, b, v, d)
    if not d.writable:
        raise InvalidArgument("d is read-only; give a writable array")
    e4m3, f32 = _library.FLOAT8_E4M3, _library.FLOAT32
    types = (
        element_type("a's values", a, e4m3), element_type("a's scales", u, f32),
        element_type("b's values", b, e4m3), element_type("b's scales", v, f32),
        element_type("d", d, _library.BFLOAT16, f32),
    )
    if 0 in d.shape:
        return None
    return _library.Problem(
        a=matrix("a's values", a, types[0], row_major=True),
        u=matrix("a's scales", u, types[1]),
        b=transposed(matrix("b's values", b, types[2], row_major=True)),
        v=transposed(matrix("b's scales", v, types[3])),
        d=matrix("d", d, types[4], row_major=True),
        A=a.pointer, U=u.pointer, B=b.pointer, V=v.pointer, D=d.pointer,
        quant_a=_library.QUANT_K, group_a=GROUP, quant_b=_library.QUANT_B, group_b=GROUP,
        pdl=int(pdl))


class _Kind(NamedTuple):
    """What tuning goes by: the problem without addresses."""

    place: int
    layouts: tuple
    alignments: tuple


def _kind(operands):
    return _Kind(operands[0].place, tuple((o.dtype, o.shape, o.strides) for o in operands),
                 tuple(o.pointer & 15 for o in operands))


def _plan(key, values, pdl):
    """A plan, kept under `key`; tuned first inside `with autotune`. None when d is empty."""
    operands = _operands(values)
    problem = _problem(operands, pdl)
    if problem is None:
        return None
    place = operands[0].place
    if place != HOST and _capturing():
        raise Error(
            "FAILED_PRECONDITION",
            "a CUDA graph is being captured, and this problem was not planned before: preparing a "
            "kernel, or tuning, must not happen inside a capture; call fp8_gemm_nt with these "
            "tensors once before the capture")
    owner, kind = engine(place), _kind(operands)
    if autotune.running and (tuner := autotune.of_this_thread()) is not None:
        tuner.tune(owner, kind, problem, None if place == HOST else _current_stream(place))
    plan = Plan(owner, problem, kind)
    keep(key, plan)
    return plan


def _capturing():
    return sys.modules["torch"].cuda.is_current_stream_capturing()


def explain(a, b, d, *, pdl=False):
    """Which kernel fp8_gemm_nt(a, b, d) takes, its predicted and measured time, its share of the
    roofline, and for every other kernel why not. Launches nothing."""
    try:
        (av, au), (bv, bu) = a, b
    except (TypeError, ValueError):
        raise _no_pairs("explain") from None
    operands = _operands((av, au, bv, bu, d))
    problem = _problem(operands, flag("pdl", pdl))
    if problem is None:
        return f"d has the shape {operands[4].shape}: nothing to compute"
    owner, needed = engine(operands[0].place), c_size_t()
    check(LIBRARY.culet_explain(owner.handle, byref(problem), None, 0, byref(needed)))
    text = ctypes.create_string_buffer(needed.value)
    check(LIBRARY.culet_explain(owner.handle, byref(problem), text, needed, None))
    return text.value.decode()
