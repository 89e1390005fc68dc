"""Launches of plans by culet_launch_with, whose one argument costs ctypes less than culet_launch's nine."""

import ctypes
import struct

from culet._library import LIBRARY, InvalidArgument, LaunchArgs, check, shown

_pack = struct.Struct("N5P2f2P").pack  # a LaunchArgs, at a fraction of its cost
_size = ctypes.sizeof(LaunchArgs)
launch_packed = LIBRARY["culet_launch_with"]  # a status of what `packed` made; no conversion is declared


def packed(handle, a, u, c, d, alpha, beta, workspace, stream):
    """The arguments of a launch; None is null. InvalidArgument for what they cannot be."""
    try:
        return _pack(_size, handle, a or 0, u or 0, c or 0, d or 0, alpha, beta, workspace or 0, stream or 0)
    except struct.error:
        raise InvalidArgument(f"stream is {shown(stream)}; give a CUDA stream's address as a number") from None


def launch(handle, a, u, c, d, alpha, beta, workspace, stream):
    """Launches a plan on addresses. Raises Error."""
    if status := launch_packed(packed(handle, a, u, c, d, alpha, beta, workspace, stream)):
        check(status)
