"""grouped_gemm_nt: rows by groups, each with a matrix of its own; route: which rows are whose."""

import sys
from ctypes import byref
from typing import Any, NamedTuple, Optional, Tuple, Union

from culet import _stream
from culet._engine import engine, has_engine
from culet._library import (BFLOAT16, EPILOGUE_GATED_SILU, EPILOGUE_NONE, FLOAT16, FLOAT32, FLOAT8_E4M3, LIBRARY,
                            Error, Grouped, InvalidArgument, check, shown)
from culet._make import maker
from culet._operand import HOST, MOST, element_type, flag, is_tensor, operand, stream_of
from culet._plan import number

GROUP = 128  # values that share a scale
Array = Any
Pair = Union[Array, Tuple[Array, Array]]

_PLAIN = (BFLOAT16, FLOAT16, FLOAT32)


def grouped_gemm_nt(a: Pair, b: Pair, out: Optional[Array] = None, *, offsets: Optional[Array] = None,
                    starts: Optional[Array] = None, counts: Optional[Array] = None,
                    index: Optional[Array] = None, rows: Optional[int] = None, bias: Optional[Array] = None,
                    epilogue: Optional[str] = None, out_dtype: Any = None,
                    expected: Optional[Tuple[int, int, int]] = None, pdl: bool = False) -> Array:
    """out = rows of a, each times the transpose of its group's matrix of b, as a mixture of experts needs
    it; returns out.

    Shapes: a (rows, K), or with an index (tokens, K); b (G, N, K), with the epilogue (G, 2 N, K); out
    (rows, N); bias (G, rows of a group's b). Of E4M3 a and b are pairs: a's scales (rows of a,
    ceil(K / 128)), b's (G, ceil(rows of a group's b / 128), ceil(K / 128)).
    Which rows are whose: offsets (G + 1), group g has the rows offsets[g] to offsets[g + 1]; or starts and
    counts, (G) each, between which there may be gaps. int32, where a is, read when the product runs:
    nothing is copied to the host, and a CUDA graph serves every routing. Groups must not overlap. Rows of
    no group stay as they are in out; in an out that is made they are whatever was in its memory.
    index: (rows) int32: the row of a that a row of out is made of; outside of a it counts as zeros.
    rows: of out where it is made, at most; by default the index's, else a's.
    Types: a and b E4M3, BF16, F16 or FP32; scales FP32; out and bias BF16, F16 or FP32. On a GPU, of
    Hopper's kind, E4M3, BF16 and F16. torch tensors of one device, or host arrays as in gemm.
    Layout: rows of a and out contiguous, any leading dimension, which on a GPU is a multiple of 16 bytes;
    a's scales in either order; all else contiguous.
    epilogue: "gated_silu_halves": silu(gate) * up, where the first half of a group's rows of b is gate's.
    N % 8 == 0 then, of E4M3 N % 128 == 0.
    expected: (tokens, active, experts): each of so many tokens goes to `active` of `experts` experts, of
    which the groups are some or all; helps to choose a kernel.
    pdl, async, gradients: as gemm. A second call with torch tensors of the same shapes, strides and types, with
    an out, only launches.
    Raises: InvalidArgument and Error.
    """
    return product(a, b, out, offsets, starts, counts, index, rows, bias, epilogue, out_dtype, expected, pdl)


def product(a, b, out, offsets, starts, counts, index, rows, bias, epilogue, out_dtype, expected, pdl, sm_budget=0):
    """grouped_gemm_nt on at most so many multiprocessors (on the CPU threads); 0: all."""
    (a, a_scale), (b, b_scale) = _pair("a", a), _pair("b", b)
    key = pointers = None
    if out is not None and rows is None and out_dtype is None:
        values = (a, b, a_scale, b_scale, offsets if starts is None else starts, counts, index, bias, out)
        key, pointers = _key(values, (epilogue, expected, pdl, sm_budget, offsets is None))
        known = _KNOWN.get(key)
        if known is not None:
            _launch(known, pointers)
            return out
    if epilogue is not None and epilogue != "gated_silu_halves":
        raise InvalidArgument(f"epilogue is {shown(epilogue)}; give None or 'gated_silu_halves'")
    if (offsets is None) == (starts is None) or (starts is None) != (counts is None):
        raise InvalidArgument("give offsets, or starts and counts, one of the two")
    x, w = operand("a", a), operand("b", b, (3,))
    kind = element_type("a", x, FLOAT8_E4M3, *_PLAIN)
    element_type("b", w, kind)
    groups, rows_b, k = w.shape
    width = rows_b // 2 if epilogue else rows_b
    if epilogue and rows_b % 2:
        raise InvalidArgument(f"b has the shape {w.shape}; {epilogue} takes as many rows of gate as of up")
    if x.shape[1] != k:
        raise InvalidArgument(f"a has the shape {x.shape}, but b is {w.shape}: both need as many columns")
    wheres = {"offsets": (offsets, groups + 1), "starts": (starts, groups), "counts": (counts, groups)}
    ints = {name: _ints(name, value, count) for name, (value, count) in wheres.items() if value is not None}
    if index is not None:
        ints["index"] = _ints("index", index, None)
    out = _output(a, x, out, ints, rows, width, out_dtype)
    d = operand("out", out)
    found = {"a": x, "b": w, "out": d, **ints}
    for name, value, ranks in (("a's scales", a_scale, (2,)), ("b's scales", b_scale, (3,)), ("bias", bias, (2,))):
        if value is not None:
            found[name] = operand(name, value, ranks)
    _check(found, kind == FLOAT8_E4M3, groups, rows_b, width)
    made = _problem(found, kind, epilogue, expected, flag("pdl", pdl))
    made.sm_budget = sm_budget
    if made.rows == 0 or 0 in w.shape:
        return out
    if x.place != HOST and all(map(is_tensor, (a, b, out))):
        stream = _stream.current(x.place)
    else:
        stream = stream_of(x.place, (out, a, b))
    if x.place != HOST and not has_engine(x.place) and _is_capturing():
        raise Error("FAILED_PRECONDITION", "a CUDA graph is being captured, and this is the first product on its "
                    "device, whose engine cannot be made inside a capture; make this call once before")
    check(LIBRARY.culet_grouped_gemm(engine(x.place).handle, byref(made), stream))
    if key is not None:
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[key] = _Known(bytes(made), engine(x.place), x.place)
    return out


class _Known(NamedTuple):
    """A call that was checked: all but its pointers."""

    made: bytes
    owner: Any
    place: int


_KNOWN = {}
_MOST_KNOWN = 4096
_POINTERS = ("A", "B", "U", "V", "starts", "counts", "index", "bias", "D")


def _key(values, others):
    """What checks of torch tensors depend on, and their pointers; None for other arrays, and for tensors that are
    checked at each call."""
    key, pointers = [others], []
    try:
        for value in values:
            if value is None:
                key.append(None)
                pointers.append(None)
                continue
            pointer = value.data_ptr()
            if not pointer or value.is_neg():
                return None, None
            key += (value.shape, value.stride(), value.dtype, value.get_device())
            pointers.append(pointer)
        key = tuple(key)
        hash(key)
    except (AttributeError, RuntimeError, TypeError):  # no tensors, or without memory; `expected` in a list
        return None, None
    return key, pointers


def _launch(known, pointers):
    made = Grouped.from_buffer_copy(known.made)
    for name, pointer in zip(_POINTERS, pointers):
        setattr(made, name, pointer)
    stream = None if known.place == HOST else _stream.current(known.place)
    check(LIBRARY.culet_grouped_gemm(known.owner.handle, byref(made), stream))


def _is_capturing():
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_current_stream_capturing()


def _pair(name, value):
    if not isinstance(value, (tuple, list)):
        return value, None
    try:
        values, scales = value
    except ValueError:
        raise InvalidArgument(f"{name} has {len(value)} parts; give a pair (values, scales)") from None
    return values, scales


def _ints(name, value, count):
    """A vector of int32 as an Operand."""
    found = operand(name, value, (1,))
    if found.dtype not in ("int32", "i", "<i"):
        raise InvalidArgument(f"{name} holds {found.dtype}; give int32")
    if count is not None and found.shape != (count,):
        raise InvalidArgument(f"{name} has the shape {found.shape}, but b has {count - (name == 'offsets')} groups: it "
                              f"must be ({count},)")
    _contiguous(name, found)
    return found


def _contiguous(name, found):
    step = 1
    for extent, stride in zip(reversed(found.shape), reversed(found.strides)):
        if extent > 1 and stride != step:
            raise InvalidArgument(f"{name} of shape {found.shape} has the strides {found.strides}; pass a contiguous "
                                  "copy")
        step *= extent


def _output(a, x, out, ints, rows, width, out_dtype):
    if out is not None:
        if out_dtype is not None or rows is not None:
            raise InvalidArgument("out is given with out_dtype or rows, which are of one that is made; leave them out")
        return out
    count = ints["index"].shape[0] if "index" in ints else x.shape[0]
    if rows is not None:
        count = _count("rows", rows, 0, count)
    name = str(out_dtype).removeprefix("torch.") if out_dtype is not None else (
        {"float8_e4m3fn": "bfloat16", "uint8": "uint16"}.get(x.dtype, x.dtype))
    if name not in ("bfloat16", "float16", "float32", "uint16"):
        raise InvalidArgument(f"out_dtype is {shown(out_dtype)}; give bfloat16, float16 or float32")
    return maker("a", a)((count, width), name)


def _count(name, value, least, most):
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
        return value
    raise InvalidArgument(f"{name} is {shown(value)}; give a number from {least} to {most}")


def _check(found, scaled, groups, rows_b, width):
    x, w, d = found["a"], found["b"], found["out"]
    k = w.shape[2]
    blocks = -(-k // GROUP)
    for name, of in (("a's scales", "a"), ("b's scales", "b")):
        if (name in found) != scaled:
            raise InvalidArgument(f"{of} holds {x.dtype}; " + (
                f"give a pair (values, scales) for {of}" if scaled else "only E4M3 has scales"))
    wanted = [("out", (d.shape[0], width), f"b is {w.shape}"),
              ("a's scales", (x.shape[0], blocks), f"a's values are {x.shape}"),
              ("b's scales", (groups, -(-rows_b // GROUP), blocks), f"b's values are {w.shape}"),
              ("bias", (groups, rows_b), f"b is {w.shape}")]
    for name, shape, reason in wanted:
        if name in found and found[name].shape != shape:
            raise InvalidArgument(f"{name} has the shape {found[name].shape}, but {reason}: it must be {shape}")
    if "index" in found:
        if found["index"].shape[0] < d.shape[0]:
            raise InvalidArgument(f"index has {found['index'].shape[0]} elements, but out {d.shape[0]} rows; give one "
                                  "a row")
    elif x.shape[0] < d.shape[0]:
        raise InvalidArgument(f"out has {d.shape[0]} rows, but a {x.shape[0]}; without an index a has as many")
    for name, one in found.items():
        if one.place != x.place:
            raise InvalidArgument(f"{name} is on another device than a; move one")
        if max(one.shape, default=0) > MOST:
            raise InvalidArgument(f"{name} has the shape {one.shape}; give at most {MOST} of each axis")
        if name in ("b", "b's scales", "bias"):
            _contiguous(name, one)
        if name in ("a", "out") and (one.shape[1] > 1 and one.strides[1] != 1):
            raise InvalidArgument(f"{name} of shape {one.shape} has the strides {one.strides}; its rows must be "
                                  "contiguous: pass a contiguous copy")
    if not d.writable:
        raise InvalidArgument("out is read-only; give a writable array")


def _problem(found, kind, epilogue, expected, pdl):
    x, w, d = found["a"], found["b"], found["out"]
    made = Grouped(groups=w.shape[0], rows=d.shape[0], a_rows=x.shape[0], n=d.shape[1], k=w.shape[2], type=kind,
                   d_type=element_type("out", d, *_PLAIN),
                   epilogue=EPILOGUE_GATED_SILU if epilogue else EPILOGUE_NONE,
                   A=x.pointer, lda=x.strides[0] if x.shape[0] > 1 else 0, B=w.pointer, D=d.pointer,
                   ldd=d.strides[0] if d.shape[0] > 1 else 0, pdl=int(pdl))
    if "a's scales" in found:
        u, v = found["a's scales"], found["b's scales"]
        for name, one in (("a's scales", u), ("b's scales", v)):
            element_type(name, one, FLOAT32)
        made.U, made.V = u.pointer, v.pointer
        (rows, blocks), (made.u_row, made.u_block) = u.shape, u.strides
        # The stride of an axis with one element says nothing.
        if rows == 1 and blocks > 1 and made.u_block != 1:
            made.u_row = 1
        elif blocks == 1 and made.u_row != 1:
            made.u_block = 1
        elif rows == 1:
            made.u_row, made.u_block = blocks, 1
        elif blocks == 1:
            made.u_block = max(made.u_block, rows)
    if "offsets" in found:
        made.starts = found["offsets"].pointer
    else:
        made.starts, made.counts = found["starts"].pointer, found["counts"].pointer
    if "index" in found:
        made.index = found["index"].pointer
    if "bias" in found:
        made.bias, made.bias_type = found["bias"].pointer, element_type("bias", found["bias"], *_PLAIN)
    if expected is not None:
        made.expected_tokens, made.expected_active, made.expected_experts = _expected(expected)
    return made


def _expected(expected):
    if not isinstance(expected, (tuple, list)) or len(expected) != 3:
        raise InvalidArgument(f"expected is {shown(expected)}; give (tokens, active, experts)")
    return [_count(f"expected's {what}", value, 1, MOST)
            for what, value in zip(("tokens", "active", "experts"), expected)]


class Routes(NamedTuple):
    """Where `route` sends tokens. T tokens, each to k of E experts; route r = token * k + choice."""

    ids: Array      # (T, k) int32: the experts of a token, the first choice first
    weights: Array  # (T, k) FP32; of a dropped route 0
    offsets: Array  # (local experts + 1) int32: the rows of each, as grouped_gemm_nt takes them
    order: Array    # (T * k) int32: the route of each row; order // k is its token, an index of grouped_gemm_nt
    places: Array   # (T * k) int32: the row of each route, the inverse of order; of a dropped route -1
    dropped: Array  # () int32: routes to experts that are not local; order has them last


def route(logits: Array, top_k: int, *, scoring: str = "softmax", bias: Optional[Array] = None, groups: int = 1,
          kept_groups: int = 1, group_score: str = "best_two", renormalize: bool = False,
          scale: float = 1.0, local: Optional[Tuple[int, int]] = None) -> Routes:
    """The experts of each token, and rows by experts, from a router's logits (T, E): a torch tensor of any
    device, or a numpy array.

        found = culet.route(logits, 8, renormalize=True)
        h = culet.grouped_gemm_nt(x, gate_up, offsets=found.offsets, index=found.order // 8,
                                  epilogue="gated_silu_halves")
        y = culet.grouped_gemm_nt(h, down, offsets=found.offsets)
        out = (y[found.places.long()].view(T, 8, -1) * found.weights[..., None]).sum(1)

    scoring: "softmax" over all experts, "sigmoid", or "softmax_of_chosen", over a token's own.
    bias: (E), added to the scores by which experts are chosen, and not to weights (DeepSeek-V3).
    groups: experts are in so many groups of one size, and only those of the kept_groups best can be chosen;
    a group is as good as the sum of its two best experts, or with group_score "maximum" as its best.
    renormalize: weights are divided by their sum. scale: of the weights, in the end.
    local: (first, count): the weights here are those of so many experts from `first` on, as on one of several
    ranks; by default all. Routes to others are dropped, and counted. Tokens choose among all, and weights are what
    they would be; sums over the ranks are the whole:

        y = y[found.places.clamp(min=0).long()].where(found.places[:, None] >= 0, 0)

    Of equal scores the first expert is chosen. FP32. Operations of torch: on a GPU nothing waits, and CUDA
    graphs can capture it.
    Raises: InvalidArgument.
    """
    torch = _torch_of(logits)
    if not is_tensor(logits):
        numpy = sys.modules["numpy"]
        found = route(torch.from_numpy(numpy.ascontiguousarray(logits, dtype=numpy.float32)), top_k, scoring=scoring,
                      bias=None if bias is None else torch.from_numpy(numpy.asarray(bias, dtype=numpy.float32)),
                      groups=groups, kept_groups=kept_groups, group_score=group_score, renormalize=renormalize,
                      scale=scale, local=local)
        return Routes(*(value.numpy() for value in found))
    if logits.dim() != 2 or not logits.shape[1]:
        raise InvalidArgument(f"logits has the shape {tuple(logits.shape)}; give (tokens, experts)")
    tokens, experts = logits.shape
    _check_routing(experts, top_k, scoring, bias, groups, kept_groups, group_score)
    first, count = _local(local, experts)
    x = logits.float()
    scores = x.softmax(1) if scoring == "softmax" else x.sigmoid() if scoring == "sigmoid" else x
    by = scores if bias is None else scores + bias.float()
    if groups > 1:
        by = _of_best_groups(torch, by, groups, kept_groups, group_score)
    # A stable sort, so that the first of equals comes first; topk promises no order.
    ids = by.sort(dim=1, descending=True, stable=True).indices[:, :top_k]
    weights = scores.gather(1, ids)
    if scoring == "softmax_of_chosen":
        weights = weights.softmax(1)
    if renormalize:
        weights = weights / weights.sum(1, keepdim=True).clamp(min=1e-20)
    weights = weights * number("scale", scale)
    flat = ids.reshape(-1) - first
    if count < experts:
        inside = (flat >= 0) & (flat < count)
        weights = weights.where(inside.view_as(weights), 0)
        flat = flat.where(inside, count)  # behind the last
    by_expert, order = flat.sort(stable=True)
    every = torch.arange(count + 1, device=flat.device, dtype=flat.dtype)
    offsets = torch.searchsorted(by_expert, every).int()
    places = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
    if count < experts:
        places = places.where(inside, -1)
    return Routes(ids.int(), weights, offsets, order.int(), places.int(), len(order) - offsets[-1])


def _local(local, experts):
    if local is None:
        return 0, experts
    if not isinstance(local, (tuple, list)) or len(local) != 2:
        raise InvalidArgument(f"local is {shown(local)}; give (first, count)")
    first = _count("local's first", local[0], 0, experts - 1)
    return first, _count("local's count", local[1], 1, experts - first)


def _torch_of(logits):
    if is_tensor(logits):
        return sys.modules["torch"]
    if not hasattr(logits, "__array_interface__"):
        raise InvalidArgument(f"logits is a {type(logits).__name__}; give a torch tensor or a numpy array")
    try:
        import torch
    except ImportError:
        raise InvalidArgument("logits is a numpy array, and route needs torch, which is not installed") from None
    return torch


def _check_routing(experts, top_k, scoring, bias, groups, kept_groups, group_score):
    if scoring not in ("softmax", "sigmoid", "softmax_of_chosen"):
        raise InvalidArgument(f"scoring is {shown(scoring)}; give 'softmax', 'sigmoid' or 'softmax_of_chosen'")
    if group_score not in ("best_two", "maximum"):
        raise InvalidArgument(f"group_score is {shown(group_score)}; give 'best_two' or 'maximum'")
    _count("groups", groups, 1, experts)
    if experts % groups:
        raise InvalidArgument(f"groups is {groups}; {experts} experts make no groups of one size")
    _count("kept_groups", kept_groups, 1, groups)
    _count("top_k", top_k, 1, experts // groups * kept_groups)
    if bias is not None and tuple(bias.shape) != (experts,):
        raise InvalidArgument(f"bias has the shape {tuple(bias.shape)}; give one number for each of {experts} experts")


def _of_best_groups(torch, by, groups, kept_groups, group_score):
    """Scores with those of other groups at minus infinity."""
    tokens, experts = by.shape
    each = by.view(tokens, groups, experts // groups)
    best = each.topk(min(2 if group_score == "best_two" else 1, each.shape[2]), 2).values.sum(2)
    kept = best.sort(dim=1, descending=True, stable=True).indices[:, :kept_groups]
    chosen = torch.zeros_like(best, dtype=torch.bool).scatter_(1, kept, True)
    return each.masked_fill(~chosen[..., None], float("-inf")).reshape(tokens, experts)
