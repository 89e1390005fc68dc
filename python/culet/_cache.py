"""The measured choices of a device, in files."""

import os
from ctypes import byref
from typing import Dict, Union

from culet import _library
from culet._engine import engine
from culet._library import LIBRARY, InvalidArgument, check, path_bytes, shown
from culet._operand import HOST
from culet._plans import drop_all_unmeasured


def place_of(device):
    """The CUDA device's number of "cuda" and "cuda:N", HOST of "cpu"."""
    try:
        name = str(device)
    except Exception:  # of integers of thousands of digits, for instance
        name = ""
    if name == "cpu":
        return HOST
    if name == "cuda":
        return 0
    if name.startswith("cuda:") and name[5:].isdecimal() and len(name) < 15:
        return int(name[5:])
    raise InvalidArgument(f"device is {shown(device)}; give 'cpu', 'cuda' or 'cuda:N'")


def load_cache(path: Union[str, "os.PathLike[str]"], device: str = "cpu") -> Dict[str, int]:
    """Merges a cache file's choices into a device's: measured beats predicted, newer beats older.
    The plans that were made without a measured choice are made anew when they are next used.

    Returns how many records were `used`, and why others were not: {"used": 12, "other_device": 3, ...}.
    Raises: Error when there is no such file (NOT_FOUND), or it is no cache (DATA_LOSS).
    """
    report = _library.CacheReport()
    check(LIBRARY.culet_engine_load(engine(place_of(device)).handle, path_bytes("path", path),
                                    byref(report)))
    drop_all_unmeasured()
    return {name: getattr(report, name) for name, _ in report._fields_ if name != "struct_size"}


def save_cache(path: Union[str, "os.PathLike[str]", None] = None, device: str = "cpu") -> None:
    """Merges a device's measured choices into a cache file, atomically; by default into the file
    that they were read from (CULET_CACHE, else the user's; "off": nothing is written). Without any choice
    no file is made.
    Raises: Error as the file system, and when the file is no cache (DATA_LOSS)."""
    check(LIBRARY.culet_engine_save(engine(place_of(device)).handle,
                                    None if path is None else path_bytes("path", path)))
