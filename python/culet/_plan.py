"""Plan: a product that is prepared once and launched at will."""

import math
from typing import Any, Optional

from culet import _stream
from culet._dlpack import NO_SYNC
from culet._launch import launch, launch_packed, packed
from culet._library import Error, InvalidArgument, check, no_pickle, shown
from culet._operand import HOST, Packed, is_tensor, operand, stream_of
from culet._problem import plan

# Where the operands that may change stand in a form's tuples.
_A, _U, _D, _C = 0, 1, 4, 5


class Plan:
    """A product that culet.plan prepared; a call launches it, on the stream that gemm takes.

    Threads may share it. It keeps its operands and the memory that they had when it was made, and its
    kernel until close(), also a `with` block's end; a launch that is under way, or captured, does not need
    it any more.
    kernel: the id of the kernel that was chosen; None for an empty product, whose launch is none."""

    __slots__ = ("_form", "_values", "_memory", "_found", "_kinds", "_pointers", "_factors", "_plan", "_place",
                 "_is_torch", "_again", "kernel", "__weakref__")

    def __init__(self, form, a, u, b, v, d, c, bias, alpha, beta, accumulate, pdl, epilogue=None, w=None,
                 zeros=None):
        self._plan = None
        added = None if not beta else d if c is None else c
        values = a, u, b, v, d, None if added is d else added, bias, w, *(zeros or (None, None))
        place = operand(form.names[_D], d, form.ranks[_D]).place
        stream = stream_of(place, (d, *values))
        self._form, self._values, self._place = form, values, place
        self._memory = [_kept(value) for value in values if value is not None]
        self._found = tuple(self._operand(i, value, NO_SYNC) for i, value in enumerate(values))
        self._kinds = tuple(_kind(value)[1] for value in values)
        self._pointers = tuple(found and found.pointer for found in self._found)
        self._factors = alpha, beta
        self._plan = plan(form, self._found, beta, accumulate, pdl, epilogue, stream) or _EMPTY
        self.kernel = None if self._plan is _EMPTY else self._plan.kernel
        self._again = {}  # stream -> the arguments of a launch that changes nothing
        # Of other arrays, bound ones too, the stream is asked at each launch.
        self._is_torch = place == HOST or all(map(_has_no_stream, values))

    def __call__(self, a: Any = None, out: Any = None, *, a_scale: Any = None, c: Any = None,
                 alpha: Optional[float] = None, beta: Optional[float] = None) -> Any:
        """Launches; returns out. What is None is as the plan was made; a plan without a beta takes none.
        Async on a GPU, complete on return on the CPU.
        Raises: InvalidArgument for an operand of another shape, stride, type or device; Error."""
        planned = self._plan
        if planned is None:
            raise Error("FAILED_PRECONDITION", "the plan is closed; make another with culet.plan")
        if a is out is a_scale is c is alpha is beta is None and self._is_torch:
            again = self._again.get(_stream.current(self._place) if self._place != HOST else None)
            if again is not None:
                if status := launch_packed(again):
                    check(status)
                return self._values[_D]
        pa, pu, _, _, pd, pc, *_ = self._pointers
        factor, added = self._factors
        if a is not None:
            pa = self._pointer(_A, a)
        if out is not None:
            pd = self._pointer(_D, out)
        else:
            out = self._values[_D]
        if a_scale is not None:
            pu = self._pointer(_U, a_scale)
        if c is not None:
            pc = self._pointer(_C, c)
        if alpha is not None:
            factor = number("alpha", alpha)
        if beta is not None:
            planned_beta, added = added, number("beta", beta)
            if added and not planned_beta:
                raise InvalidArgument(f"beta is {added}, but the plan was made without; give one to culet.plan")
        if planned is _EMPTY:
            return out
        if self._place == HOST:
            stream = None
        elif self._is_torch and all(map(_has_no_stream, (a, a_scale, out, c))):
            stream = _stream.current(self._place)
        else:
            stream = self._ordered(a, a_scale, out, c)
        workspace = planned.workspace and planned.engine.workspaces.get(planned.workspace, stream)
        arguments = (planned.handle, pa, pu, (pc or pd) if added else None, pd, factor, added, workspace,
                     stream)
        if a is a_scale is c is alpha is beta is None and self._keeps(planned, out):
            self._again[stream] = packed(*arguments)
        launch(*arguments)
        return out

    def _keeps(self, planned, out):
        """Whether the next launch on this stream can have the arguments of this one. A workspace is asked
        for each time: a capture takes one of its own."""
        return (out is self._values[_D] and self._is_torch and planned.workspace is None
                and len(self._again) < _MOST_STREAMS)

    def _pointer(self, i, value):
        """The address of what stands for operand i in this launch."""
        wanted = self._kinds[i]
        try:  # a tensor where a tensor was, by the shortest way
            if (value.dtype is wanted[2] and value.shape == wanted[0] and value.stride() == wanted[1]
                    and value.get_device() == wanted[3] and not value.is_neg()):
                if pointer := value.data_ptr():
                    return pointer
        except (AttributeError, RuntimeError, TypeError):
            pass
        pointer, kind = _kind(value)
        if kind is not None and kind == wanted and 0 < pointer < 2**64:
            return pointer
        name, planned = self._form.names[i], self._found[i]
        if planned is None:
            raise InvalidArgument(f"{name} is given, but the plan was made without; give it to culet.plan")
        found = self._operand(i, value, NO_SYNC)
        if (found.dtype, found.shape, found.place) != (planned.dtype, planned.shape, planned.place) or any(
                extent > 1 and one != other for extent, one, other in
                zip(found.shape, found.strides, planned.strides)):
            raise InvalidArgument(f"{name} is {_text(found)}, but the plan was made for {_text(planned)}; "
                                  "give the like, or make another plan")
        if i == _D and not found.writable:
            raise InvalidArgument(f"{name} is read-only; give a writable array")
        return found.pointer

    def _operand(self, i, value, stream):
        return None if value is None else operand(self._form.names[i], value, self._form.ranks[i], stream)

    def _ordered(self, a, a_scale, out, c):
        """The stream of this launch, on which what the operands wait for comes first."""
        used = list(self._values)
        for i, value in ((_D, out), (_A, a), (_U, a_scale), (_C, c)):
            used[i] = used[i] if value is None else value
        stream = stream_of(self._place, (out, *used))
        for i, value in enumerate(used):
            self._operand(i, value, stream)
        return stream

    __reduce_ex__ = no_pickle

    def close(self) -> None:
        """Gives the kernel's plan back; calls are an error from now on."""
        self._plan = None
        self._again = {}

    def __enter__(self) -> "Plan":
        return self

    def __exit__(self, kind, value, trace):
        self.close()

    def __repr__(self):
        state = "closed" if self._plan is None else self.kernel
        return f"culet.Plan({_text(self._found[_A])} -> {_text(self._found[_D])}, {state})"


_MOST_STREAMS = 64


_EMPTY = object()  # of a product without elements


def _has_no_stream(value):
    """Whether nothing but torch's current stream says when a value's memory is there."""
    return value is None or is_tensor(value) or isinstance(value, Packed)


_ARRAYS = ("__cuda_array_interface__", "__array_interface__", "__dlpack__")


def _kept(value):
    """What keeps the memory that a value has now. A tensor may be given other memory (t.data = other,
    module.to()), and a buffer that nobody looks at may move its own (bytearray, array.array)."""
    if is_tensor(value):
        return value.detach()
    if isinstance(value, Packed) or any(hasattr(value, name) for name in _ARRAYS):
        return value
    try:
        return memoryview(value)
    except TypeError:  # which _operand refuses by name
        return value


def _kind(value):
    """The address of a torch tensor or a numpy array, and what two of them must have alike; None for
    other arrays, and for those of another class at the place of one."""
    if value is None:
        return None, None
    try:
        if is_tensor(value):
            if value.is_neg():
                return None, None
            return value.data_ptr(), (value.shape, value.stride(), value.dtype, value.get_device())
        shown = value.__array_interface__
        pointer, readonly = shown["data"]
        return pointer, (shown["shape"], shown["strides"], shown["typestr"], value.dtype, readonly)
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError):
        return None, None


def _text(found):
    where = "the CPU" if found.place == HOST else f"cuda:{found.place}"
    return f"{found.shape} {found.dtype} with the strides {found.strides} on {where}"


def number(name, value):
    """A float. Raises InvalidArgument for what is none."""
    try:
        found = float(value)
    except OverflowError:
        raise InvalidArgument(f"{name} is {shown(value)}; FP32 holds none above {LARGEST}") from None
    except Exception:  # what an argument's own __float__ raises, too
        raise InvalidArgument(f"{name} is {shown(value)}; give a number") from None
    return fits(name, found)


LARGEST = 3.4028235677973366e38  # doubles below become finite floats


def fits(name, value):
    """`value`. InvalidArgument for a finite one that is infinite in FP32."""
    if not -LARGEST < value < LARGEST and not math.isinf(value) and not math.isnan(value):
        raise InvalidArgument(f"{name} is {value}; FP32 holds none above {LARGEST}")
    return value
