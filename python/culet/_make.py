"""New arrays of the kind of a caller's."""

import sys

from culet._library import InvalidArgument


def maker(name, like):
    """What makes an array of a shape and a type's name, of the kind of `like` and where that is.
    InvalidArgument where none can be made."""
    torch, numpy, cupy = (sys.modules.get(package) for package in ("torch", "numpy", "cupy"))
    if torch is not None and isinstance(like, torch.Tensor):
        return lambda shape, kind: torch.empty(shape, dtype=getattr(torch, kind), device=like.device)
    if numpy is not None and isinstance(like, numpy.ndarray):
        return lambda shape, kind: numpy.empty(shape, dtype=_numpy_type(numpy, kind))
    if cupy is not None and isinstance(like, cupy.ndarray):
        return lambda shape, kind: _on_device(cupy, like, shape, kind)
    raise InvalidArgument(f"out is None, and {name} is a {type(like).__name__}; give an out")


def _numpy_type(numpy, kind):
    try:
        return numpy.dtype(kind)
    except TypeError:
        pass
    try:
        import ml_dtypes
    except ImportError:
        raise InvalidArgument(f"numpy has no {kind} of its own, and ml_dtypes is not installed; install "
                              "it, or give an out") from None
    return getattr(ml_dtypes, kind)


# CuPy has neither, so their bits are made.
_BITS = {"float8_e4m3fn": "uint8", "bfloat16": "uint16"}


def _on_device(cupy, like, shape, kind):
    with cupy.cuda.Device(like.device.id):
        return cupy.empty(shape, dtype=_BITS.get(kind, kind))
