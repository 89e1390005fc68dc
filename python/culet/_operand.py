"""Operands: torch tensors; arrays through __cuda_array_interface__, __array_interface__, __dlpack__ or the
buffer protocol."""

import ctypes
import sys
from operator import index
from typing import NamedTuple

from culet._library import BFLOAT16, COL_MAJOR, FLOAT16, FLOAT32, FLOAT8_E4M3, ROW_MAJOR, UINT4
from culet import _dlpack, _driver
from culet._library import InvalidArgument, Matrix, no_pickle, shown

HOST = -1  # where an operand is: this, or the CUDA device's number
MOST = 2**31 - 1  # rows, columns and matrices of an operand

# By the names that torch, numpy and ml_dtypes share. Raw bits stand for what numpy cannot name.
_TYPES = {
    "float8_e4m3fn": FLOAT8_E4M3, "uint8": FLOAT8_E4M3, "bfloat16": BFLOAT16, "uint16": BFLOAT16,
    "float16": FLOAT16, "float32": FLOAT32, "uint4": UINT4,
}
_NUMBERS = {"u1": "uint8", "u2": "uint16", "f4": "float32", "f2": "float16", "f8": "float64"}
_FORMATS = {"B": "uint8", "H": "uint16", "e": "float16", "f": "float32"}
_SIZES = {"float8_e4m3fn": 1, "uint8": 1, "bfloat16": 2, "uint16": 2, "float16": 2,
          "float32": 4}


class Operand(NamedTuple):
    """An array in memory, a matrix unless said otherwise; strides in elements. What is packed has
    none."""

    pointer: int
    dtype: str
    shape: tuple
    strides: tuple
    place: int
    writable: bool = True
    pack: int = 0


def flag(name, value):
    """A bool, or what equals one: numpy's bools and 0 and 1 do."""
    try:
        if value in (0, 1):
            return bool(value)
    except Exception:  # what an argument's own == raises
        pass
    raise InvalidArgument(f"{name} is {shown(value)}; give True or False") from None


def operand(name, value, ranks=(2,), stream=_dlpack.NO_SYNC):
    """`value` as an Operand. Raises InvalidArgument for what is no array of so many axes. What an array
    waits for comes first on `stream`."""
    torch = sys.modules.get("torch")
    if isinstance(value, Packed):
        return value.operand(name)
    if torch is not None and isinstance(value, torch.Tensor):
        found = _of_tensor(name, value)
    elif hasattr(value, "__cuda_array_interface__"):
        found = _of_interface(name, value, "__cuda_array_interface__")
        after = _stream_of_interface(name, value.__cuda_array_interface__)
        if stream != _dlpack.NO_SYNC and after is not None and (after or 1) != (stream or 1):
            _driver.wait(found.place, stream, after)
    elif hasattr(value, "__array_interface__"):
        found = _of_interface(name, value, "__array_interface__")
    elif hasattr(value, "__dlpack__"):
        found = _of_dlpack(name, value, stream)
    else:
        found = _of_buffer(name, value)
    _check_memory(name, found)
    if len(found.shape) not in ranks:
        wanted = ("a matrix, or a batch of them" if 3 in ranks else
                  "a matrix" if 2 in ranks else "a vector")
        raise InvalidArgument(f"{name} has the shape {found.shape}; give {wanted}")
    return found


def _check_memory(name, found):
    """Raises InvalidArgument for an address or a shape that no array has."""
    if not 0 <= found.pointer < 2**64:
        raise InvalidArgument(f"{name} is at the address {shown(found.pointer)}, where no memory is")
    if any(extent < 0 for extent in found.shape):
        raise InvalidArgument(f"{name} has the shape {shown(found.shape)}; no axis is shorter than 0")
    if not found.pointer and 0 not in found.shape:
        raise InvalidArgument(f"{name} of shape {found.shape} has no memory: its address is null")


def _of_tensor(name, tensor):
    if tensor.device.type not in ("cuda", "cpu"):
        raise InvalidArgument(f"{name} is on {tensor.device}; culet runs on cpu and cuda")
    place = HOST if tensor.device.type == "cpu" else tensor.get_device()
    if tensor.is_neg():
        raise InvalidArgument(f"{name} is a view that negates what lies in memory; give {name}.resolve_neg()")
    dtype = str(tensor.dtype).removeprefix("torch.")
    try:
        pointer = tensor.data_ptr()
    except RuntimeError as error:  # of a sparse one, for instance
        raise InvalidArgument(f"{name} is a tensor without memory of its own ({error}); give a dense one") from None
    return Operand(pointer, dtype, tuple(tensor.shape), tuple(tensor.stride()), place)


def _strides(name, strides, shape, size):
    """Byte strides in elements; those of C order when None."""
    if strides is None or not shape:
        counts = [1] if shape else []
        for extent in reversed(shape[1:]):
            counts.insert(0, counts[0] * extent)
        return tuple(counts)
    if any(stride % size for stride in strides):
        raise InvalidArgument(
            f"{name} has strides of {strides} bytes, no multiples of its {size}-byte elements; "
            "copy it")
    return tuple(stride // size for stride in strides)


def _of_interface(name, array, protocol):
    try:
        interface = getattr(array, protocol)
        kind, shape = interface["typestr"], tuple(map(index, interface["shape"]))
        pointer, readonly = interface["data"]
        pointer, strides = index(pointer or 0), interface.get("strides")
        strides = strides and tuple(map(index, strides))
        order, number = kind[0], _NUMBERS.get(kind[1:])
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise InvalidArgument(
            f"{name} is a {type(array).__name__} whose {protocol} gives no address, shape "
            f"and type ({error!r}); give a torch tensor or a numpy array") from None
    dtype = number or str(getattr(array, "dtype", kind))
    size = _SIZES.get(dtype, 1)  # of a type that element_type will refuse, anything will do
    if order == ">" and size > 1:
        raise InvalidArgument(f"{name} has the type {kind}, in the other byte order; convert it")
    place = HOST
    if protocol == "__cuda_array_interface__":
        empty = not pointer and hasattr(array, "__dlpack_device__")
        place = array.__dlpack_device__()[1] if empty else _driver.place_of(name, pointer)
    return Operand(pointer, dtype, shape, _strides(name, strides, shape, size), place, not readonly)


def _stream_of_interface(name, interface):
    stream = interface.get("stream")
    if stream is not None and not isinstance(stream, int):
        raise InvalidArgument(f"{name}'s __cuda_array_interface__ has the stream {shown(stream)}; it must be a number")
    return stream


def _of_dlpack(name, array, stream):
    pointer, dtype, shape, strides, kind, number, writable = _dlpack.read(name, array, stream)
    if strides is None:
        strides = _strides(name, None, shape, 1)
    place = HOST
    if kind == _dlpack.CUDA:
        place = _driver.place_of(name, pointer) if pointer else number
        if place != number:
            raise InvalidArgument(f"{name}'s __dlpack__ is on cuda:{number}, but its memory on cuda:{place}")
    return Operand(pointer, dtype, shape, strides, place, writable)


def is_tensor(value):
    """Whether it is torch's."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def check_tensor(name, value):
    """Raises InvalidArgument for what is no tensor of torch's."""
    if not is_tensor(value):
        raise InvalidArgument(f"{name} is a {type(value).__name__}; give a torch tensor")


def ordered(name, value, others=()):
    """A matrix as an Operand, and the stream of a GPU to work on, on which what it waits for comes first.
    others: arrays whose stream goes before its own."""
    found = operand(name, value)
    stream = stream_of(found.place, (*others, value))
    if found.place != HOST and not is_tensor(value):
        operand(name, value, stream=stream)
    return found, stream


def stream_of(place, values):
    """The stream of a CUDA device to work on, as a number: torch's current one where torch is there and
    an operand is its tensor, else the one that an array names, else None, the default stream."""
    if place == HOST:
        return None
    if any(map(is_tensor, values)):
        return sys.modules["torch"].cuda.current_stream(place).cuda_stream
    for value in values:
        interface = getattr(value, "__cuda_array_interface__", None)
        if isinstance(interface, dict) and interface.get("stream") is not None:
            return _stream_of_interface("an array", interface)
    return None


def missing(name):
    """What is wrong where None stands for an operand."""
    return InvalidArgument(f"{name} is None; give a torch tensor or another array")


def _of_buffer(name, value):
    try:
        view = memoryview(value)
    except TypeError:
        if value is None:
            raise missing(name) from None
        raise InvalidArgument(
            f"{name} is a {type(value).__name__}; give a torch tensor, a numpy array or a "
            "two-dimensional writable buffer") from None
    if view.readonly or not view.c_contiguous:
        raise InvalidArgument(
            f"{name} is a {'read-only' if view.readonly else 'strided'} buffer; give a writable "
            "contiguous one, or an object with __array_interface__")
    pointer = ctypes.addressof(ctypes.c_char.from_buffer(view)) if view.nbytes else 0
    dtype = _FORMATS.get(view.format.lstrip("@=<"), view.format)  # "<" is ctypes' on such machines
    shape = tuple(view.shape)
    return Operand(pointer, dtype, shape, _strides(name, view.strides, shape, view.itemsize), HOST)


def element_type(name, found, *allowed):
    """The constant of culet.h. Raises InvalidArgument when it is not among `allowed`."""
    code = _TYPES.get(found.dtype)
    if code not in allowed:
        names = " or ".join(text for text, value in _TYPES.items() if value in allowed)
        raise InvalidArgument(f"{name} holds {found.dtype}; it must hold {names}")
    return code


class Packed:
    """A weight (N, K) in the order of memory that a kernel reads best, or of 4 bits; culet.pack makes it. It
    stands for the weight as b of gemm and fp8_gemm_nt."""

    def __init__(self, memory, pointer, dtype, shape, place, number, name):
        self._memory, self._pointer, self._place, self._number = memory, pointer, place, number
        self.dtype, self.shape, self.format = dtype, shape, name

    __reduce_ex__ = no_pickle

    def __copy__(self):
        return self  # it never changes

    def __deepcopy__(self, memo):
        return self

    def __repr__(self):
        return f"culet.Packed(shape={self.shape}, dtype={self.dtype}, format={self.format!r})"

    def operand(self, name):
        """This as an Operand."""
        if name not in _WEIGHTS:
            raise InvalidArgument(f"{name} is packed; only the weight, b, can be")
        return Operand(self._pointer, self.dtype, self.shape, (), self._place, pack=self._number)

    # What a torch tensor shows, for the short way of a call.
    def data_ptr(self):
        return self._pointer

    def stride(self):
        return self._number  # no tensor's

    def get_device(self):
        return self._place

    def is_neg(self):
        return False


_WEIGHTS = ("b", "b's values")


def matrix(name, found, code, row_major=False):
    """The culet_matrix of an operand. With `row_major`, its rows must be contiguous."""
    if len(found.shape) == 3:
        return _batch(name, found, code, row_major)
    (rows, cols), (down, along) = found.shape, found.strides
    if max(rows, cols) > MOST:
        raise InvalidArgument(f"{name} has the shape {found.shape}; give at most {MOST} rows and columns")
    # The stride of an axis with one element says nothing.
    if along == 1 or cols == 1:
        if rows > 1 and down < cols:
            raise _overlapping(name, found)
        return Matrix(type=code, order=ROW_MAJOR, rows=rows, cols=cols,
                      ld=down if rows > 1 else max(cols, 1))
    if not row_major and (down == 1 or rows == 1):
        if along < rows:
            raise _overlapping(name, found)
        return Matrix(type=code, order=COL_MAJOR, rows=rows, cols=cols, ld=along)
    way_out = "its rows" if row_major else "its rows or columns"
    raise InvalidArgument(
        f"{name} of shape {found.shape} has the strides {found.strides}; {way_out} must be "
        "contiguous: pass a contiguous copy")


def _overlapping(name, found):
    return InvalidArgument(f"{name} of shape {found.shape} has the strides {found.strides}, so that its rows overlap "
                           "or run backwards: pass a contiguous copy")


def unbatched(found):
    """The first matrix (vector, number) of a batch of them."""
    return found._replace(shape=found.shape[1:], strides=found.strides[1:])


def batched(layout, found):
    """`layout` of the first matrix as that of the batch. One matrix serves all of D's."""
    if found.shape[0] > MOST:
        raise InvalidArgument(f"a batch has the shape {found.shape}; give at most {MOST} matrices")
    if found.shape[0] > 1:
        layout.num, layout.batch_stride = found.shape[0], found.strides[0]
    return layout


def _batch(name, found, code, row_major):
    return batched(matrix(name, unbatched(found), code, row_major), found)


def weight(name, found, code, row_major=False):
    """The culet_matrix of b, (N, K), as the logical B (K, N)."""
    if not found.strides:  # packed
        n, k = found.shape
        return Matrix(type=code, order=COL_MAJOR, rows=k, cols=n, ld=k, pack=found.pack)
    return transposed(matrix(name, found, code, row_major))


def transposed(layout):
    """The same memory as the transposed matrix."""
    return Matrix(type=layout.type, order=COL_MAJOR if layout.order == ROW_MAJOR else ROW_MAJOR,
                  rows=layout.cols, cols=layout.rows, ld=layout.ld, num=layout.num,
                  batch_stride=layout.batch_stride)
