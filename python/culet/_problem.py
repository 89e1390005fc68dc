"""Operands as a culet_problem: which format their shapes say, and what is wrong with them."""

import sys
from typing import NamedTuple

from culet import _library
from culet._engine import Plan, engine
from culet._library import BFLOAT16, COL_MAJOR, FLOAT16, FLOAT32, FLOAT8_E4M3, QUANT_B, QUANT_K
from culet._library import QUANT_ROW, QUANT_TENSOR, ROW_MAJOR, UINT4, Error, InvalidArgument, Matrix
from culet._operand import (HOST, Operand, batched, element_type, matrix, missing, operand, transposed,
                            unbatched, weight)
from culet._tuning import autotune

GROUP = 128  # values that share a scale: 1 x 128 of a, 128 x 128 of b
_MATRIX, _MATRICES, _SCALES, _VECTOR = (2,), (2, 3), (0, 1, 2, 3), (1,)
# What pairs rows of b, and how gate's and up's lie in it.
GATE_ORDERS = {"gated_silu": _library.GATE_EIGHTS, "gated_silu_halves": _library.GATE_HALVES}
_ACCUMULATE = {"precise": _library.ACCUMULATE_PROMOTED, "fast": _library.ACCUMULATE_FAST,
               "full": _library.ACCUMULATE_FULL}


class Form(NamedTuple):
    """What one function takes: the names of a, its scales, b, its scales, d, c, the bias, d's scales and
    the zero points of a and b, in the order of all tuples of operands here, and the types of its elements
    and of its output."""

    names: tuple
    ranks: tuple
    elements: tuple
    outputs: tuple
    rows: bool   # rows of a, b and d must be contiguous
    block: str   # what shares a scale of b, "block" or "group", whatever else shapes could mean; "": any of all
    sm_budget: int = 0  # multiprocessors, or threads, to use at most; 0: all


FP8_BLOCK = Form(("a's values", "a's scales", "b's values", "b's scales", "d", "c", "bias", "", "", ""),
                 (_MATRIX,) * 6 + (_VECTOR,) + (_MATRIX,) * 3, (FLOAT8_E4M3,), (BFLOAT16, FLOAT32), rows=True, block="block")
ANY = Form(("a", "a_scale", "b", "b_scale", "out", "c", "bias", "out_scale", "a_zero",
            "b_zero"),
           (_MATRICES, _SCALES, _MATRICES, _SCALES, _MATRICES, _MATRICES, _VECTOR, _MATRICES, _SCALES,
            _SCALES),
           (FLOAT8_E4M3, BFLOAT16, FLOAT16, FLOAT32), (BFLOAT16, FLOAT16, FLOAT32),
           rows=False, block="")


class Kind(NamedTuple):
    """What tuning goes by: the problem without addresses."""

    place: int
    layouts: tuple
    alignments: tuple
    accumulate: str
    reads_c: bool
    epilogue: str
    sm_budget: int


def operands(form, values):
    """The operands of `values`; None where one is absent."""
    for i in (0, 1, 2, 3, 4) if form.block else (0, 2, 4):
        if values[i] is None:
            raise missing(form.names[i])
    return tuple(
        value if value is None or isinstance(value, Operand) else operand(name, value, ranks)
        for name, value, ranks in zip(form.names, values, form.ranks))


def _count(form, a, b):
    """Matrices in the batch: () or (B,), to stand before shapes."""
    counts = [x.shape[0] for x in (a, b) if len(x.shape) == 3]
    if len(set(counts) - {1}) > 1:
        raise InvalidArgument(f"a is {a.shape} and b {b.shape}: give as many matrices of both, or one "
                              "that all share")
    return (max(counts, key=lambda count: (count != 1, count)),) if counts else ()


def _check_shapes(form, found, epilogue):
    a, u, b, v, d, c, bias, w, *_ = found
    (m, k), n = a.shape[-2:], b.shape[-2]
    count, groups = _count(form, a, b), -(-k // GROUP)
    names = form.names
    batch = b.shape[:-2]
    expected = [(names[2], b, (*batch, n, k), f"{names[0]} {'are' if form.block else 'is'} {a.shape}")]
    if form.block:
        expected = [("a's scales", u, (m, groups), f"a's values are {a.shape}"), *expected,
                    ("b's scales", v, (-(-n // GROUP) if form.block == "block" else n, groups),
                     f"b's values are {b.shape}")]
    reason = f"a and b have {m} and {n} rows"
    width = n
    if epilogue is not None:
        if n % 16:
            raise InvalidArgument(f"b has {n} rows; {epilogue} takes as many of gate as of up, by eights: "
                                  "give a multiple of 16")
        width, reason = n // 2, f"{reason} and {epilogue} pairs b's"
    expected.append((names[4], d, (*count, m, width), reason))
    if c is not None:
        expected.append((names[5], c, (*c.shape[:-2], m, n), f"a and b have {m} and {n} rows"))
        if c.shape[:-2] not in ((), (1,), count):
            raise InvalidArgument(f"{names[5]} has the shape {c.shape}, but there are {count} products; "
                                  "give as many matrices, or one")
    if bias is not None:
        expected.append((names[6], bias, (n,), f"b has {n} rows"))
    if w is not None:
        expected.append((names[7], w, (*count, m, -(-width // GROUP)), f"{names[4]} is {d.shape}"))
    for name, given, shape, reason in expected:
        if given.shape != shape:
            raise InvalidArgument(f"{name} has the shape {given.shape}, but {reason}: it must be "
                                  f"{shape}")
    for name, given in zip(names, found):
        if given is not None and given.place != a.place:
            where = ["the CPU" if place == HOST else f"cuda:{place}"
                     for place in (given.place, a.place)]
            raise InvalidArgument(f"{name} is on {where[0]}, {names[0]} "
                                  f"{'are' if form.block else 'is'} on {where[1]}; move one")


def _granularities(shape, rows, blocks, of_b):
    """What scales of this shape can belong to, finest last. `rows` of the operand, `blocks` the
    shape of one scale a block. Those of b may lie in a row, too, and may be of a group of each row, as a's
    blocks are."""
    found = []
    if shape in ((), (1,), (1, 1)):
        found.append(QUANT_TENSOR)
    if shape in ((rows,), (rows, 1)) or (of_b and shape == (1, rows)):
        found.append(QUANT_ROW)
    if shape == blocks:
        found.append("block")
    if of_b and shape == (rows, blocks[1]):
        found.append("group")
    return found


# Of what both shapes allow, the first counts. One scale for the one operand and one a row for the
# other is an ordinary mixture; blocks go with blocks.
_PAIRS = ((QUANT_TENSOR, QUANT_TENSOR), (QUANT_ROW, QUANT_ROW), ("block", "block"),
          ("block", "group"), (QUANT_TENSOR, QUANT_ROW), (QUANT_ROW, QUANT_TENSOR), (QUANT_TENSOR, None),
          (QUANT_ROW, None), ("block", None), (None, QUANT_TENSOR), (None, QUANT_ROW),
          (None, "block"), (None, "group"), (None, None))


def _scales_of_one(name, of, given):
    """The shape of the scales of one matrix. Those of a batch have a first axis more."""
    if len(of.shape) == 2:
        return given.shape
    if given.shape[:1] != of.shape[:1]:
        raise InvalidArgument(f"{name} has the shape {given.shape}, but {name[0]} is {of.shape}: give "
                              f"{of.shape[0]} times what one matrix has, the first axis for them")
    return given.shape[1:]


def _scales(a, u, b, v):
    """The granularity of each operand's scales."""
    (m, k), n = a.shape[-2:], b.shape[-2]
    groups = -(-k // GROUP)
    found = []
    for name, of, given, rows, blocks in (("a_scale", a, u, m, (m, groups)),
                                          ("b_scale", b, v, n, (-(-n // GROUP), groups))):
        kinds = [None] if given is None else _granularities(_scales_of_one(name, of, given), rows,
                                                            blocks, of is b)
        if not kinds:
            raise InvalidArgument(
                f"{name} has the shape {given.shape}, but {name[0]} is {of.shape}: give one scale, "
                f"one a row ({rows},), or one a block of 128 {blocks}"
                + (f", or one for 128 of a row {(rows, groups)}" if of is b else ""))
        found.append(kinds)
    for pair in _PAIRS:
        if pair[0] in found[0] and pair[1] in found[1]:
            return pair
    raise InvalidArgument(f"a_scale of shape {u.shape} and b_scale of shape {v.shape} are of "
                          "different formats; give both by block, or both by tensor or row")


def _scales_of_codes(u, b, v):
    """The same where b holds codes: a has no scales, and b's are of groups that divide K."""
    n, k = b.shape
    if v is None:
        raise InvalidArgument(f"b_scale is None, but b holds codes of 4 bits; give its scales ({n}, K / group)")
    if u is not None:
        raise InvalidArgument(f"a_scale has the shape {u.shape}, but b holds codes of 4 bits: give a in BF16, F16 or "
                              "FP32, without scales")
    groups = v.shape[-1] if len(v.shape) == 2 else 1
    if v.shape not in ((n,), (n, groups)) or not groups or k % groups:
        raise InvalidArgument(f"b_scale has the shape {v.shape}, but b is {b.shape}: give one scale a row ({n},), or "
                              f"({n}, {k} / group) of groups that divide {k}")
    return None, QUANT_ROW if groups == 1 else "codes"


def _scale_matrix(name, given, kind, code, of, of_b):
    """The culet_matrix of the scales U or V of an operand."""
    if len(of.shape) == 3:
        one = _scale_matrix(name, unbatched(given), kind, code, unbatched(of), of_b)
        return batched(one, given)
    if kind in ("block", "group", "codes"):
        layout = matrix(name, given, code)
        return transposed(layout) if of_b else layout
    count, step = max((*zip(given.shape, given.strides), (1, 1)), key=lambda axis: axis[0])
    if step < 1:
        raise InvalidArgument(f"{name} has a stride of {step}; pass a contiguous copy")
    if count == 1:
        step = 1
    if of_b:
        return Matrix(type=code, order=COL_MAJOR, rows=1, cols=count, ld=step)
    return Matrix(type=code, order=ROW_MAJOR, rows=count, cols=1, ld=step)


def problem(form, found, beta, accumulate, pdl, epilogue=None):
    """The culet_problem, or None when d is empty."""
    a, u, b, v, d, c, bias, w, *zeros = found
    names = form.names
    _check_shapes(form, found, epilogue)
    coded = not form.block and b.dtype == "uint4"
    pair = ("block", form.block) if form.block else _scales_of_codes(u, b, v) if coded else _scales(a, u, b, v)
    for name, x in ((names[4], d), (names[7], w)):
        if x is not None and not x.writable:
            raise InvalidArgument(f"{name} is read-only; give a writable array")
    outputs = form.outputs if w is None else (FLOAT8_E4M3,)
    types = [None if x is None else element_type(name, x, *allowed) for name, x, allowed in
             zip(names, found, (form.elements, (FLOAT32,), (UINT4,) if coded else form.elements,
                                _FLOATS if coded else (FLOAT32,), outputs, form.outputs, form.outputs, (FLOAT32,),
                                _FLOATS, _FLOATS))]
    if 0 in d.shape:
        return None
    made = _library.Problem(
        a=matrix(names[0], a, types[0], form.rows),
        b=weight(names[2], b, types[2], form.rows),
        d=matrix(names[4], d, types[4], form.rows),
        A=a.pointer, B=b.pointer, D=d.pointer,
        accumulate=_ACCUMULATE[accumulate], pdl=int(pdl), sm_budget=form.sm_budget)
    if u is not None:
        made.u, made.U = _scale_matrix(names[1], u, pair[0], types[1], a, False), u.pointer
        made.quant_a, made.group_a = (QUANT_K, GROUP) if pair[0] == "block" else (pair[0], 0)
    if v is not None:
        made.v, made.V = _scale_matrix(names[3], v, pair[1], types[3], b, True), v.pointer
        if pair[1] == "codes":
            made.quant_b, made.group_b = QUANT_K, b.shape[1] // v.shape[1]
        else:
            made.quant_b, made.group_b = _QUANTS_OF_B.get(pair[1], (pair[1], 0))
    if epilogue is not None:
        made.epilogue, made.gate_order = _library.EPILOGUE_GATED_SILU, GATE_ORDERS[epilogue]
        if beta and c is None:
            raise InvalidArgument(f"beta is given without c, and {names[4]} is too narrow to add to with "
                                  f"{epilogue}; give a c")
    if w is not None:
        made.epilogue = _library.EPILOGUE_GATED_SILU_QUANT
        made.w, made.W = matrix(names[7], w, types[7]), w.pointer
        made.quant_d, made.group_d = QUANT_K, GROUP
    if beta:
        added = d if c is None else c
        made.c = made.d if c is None else matrix(names[5], c, types[5])
        made.C, made.beta = added.pointer, 1.0
    for side, zero, scale in (("a", zeros[0], u), ("b", zeros[1], v)):
        if zero is not None:
            _check_zeros(side, zero, scale)
            setattr(made, f"zero_{side}", zero.pointer)
            setattr(made, f"zero_{side}_type", types[8 if side == "a" else 9])
    if bias is not None:
        if bias.strides != (1,) and bias.shape != (1,):
            raise InvalidArgument(f"bias has a stride of {bias.strides[0]}; pass a contiguous copy")
        made.bias, made.bias_type = bias.pointer, types[6]
    return made


_QUANTS_OF_B = {"block": (QUANT_B, GROUP), "group": (QUANT_K, GROUP)}
_FLOATS = (FLOAT32, FLOAT16, BFLOAT16)


def _check_zeros(side, zero, scale):
    """Zero points have the layout of their scales."""
    if scale is None:
        raise InvalidArgument(f"{side}_zero is given without {side}_scale as an array; give one, whose "
                              "shape the zero points have")
    if zero.shape != scale.shape or any(
            extent > 1 and one != other for extent, one, other in zip(zero.shape, zero.strides,
                                                                      scale.strides)):
        raise InvalidArgument(
            f"{side}_zero is {zero.shape} with the strides {zero.strides}, but {side}_scale is "
            f"{scale.shape} with {scale.strides}: give both one layout")


def kind_of(form, found, accumulate, reads_c, epilogue):
    """The Kind of operands."""
    return Kind(found[0].place, tuple(x and (x.dtype, x.shape, x.strides) for x in found),
                tuple(x and x.pointer & 15 for x in found), accumulate, reads_c, epilogue,
                form.sm_budget)


def plan(form, values, beta, accumulate, pdl, epilogue, stream):
    """A plan; tuned first inside `with autotune`. None when d is empty. stream: of a GPU, on which the
    caller works."""
    found = operands(form, values)
    made = problem(form, found, beta, accumulate, pdl, epilogue)
    if made is None:
        return None
    torch = sys.modules.get("torch")
    # Before an engine is made, which a capture would not bear either.
    captured = found[0].place != HOST and torch is not None and torch.cuda.is_current_stream_capturing()
    owner = None if captured else engine(found[0].place)
    if owner is None or owner.captures(stream):
        raise Error(
            "FAILED_PRECONDITION",
            "a CUDA graph is being captured, and this problem was not planned before: preparing a "
            "kernel, or tuning, must not happen inside a capture; make this call once before the "
            "capture")
    kind = kind_of(form, found, accumulate, bool(beta), epilogue)
    if autotune.running and (tuner := autotune.of_this_thread()) is not None:
        tuner.tune(owner, kind, made, stream)
    return Plan(owner, made, kind)
