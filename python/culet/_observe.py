"""What the library says of its work: Python's logging, profilers' ranges, how much was measured."""

import atexit
import logging
from ctypes import byref
from typing import NamedTuple

from culet import _library
from culet._cache import place_of
from culet._engine import engine
from culet._library import LIBRARY, ON_LOG, InvalidArgument, check

LOGGER = logging.getLogger("culet")
_LEVELS = {"off": 0, "debug": 1, "info": 2, "warning": 3}
_OF_LIBRARY = {1: logging.DEBUG, 2: logging.INFO, 3: logging.WARNING}


@ON_LOG
def _pass_on(_, level, message):
    try:
        LOGGER.log(_OF_LIBRARY.get(level, logging.INFO), "%s", message.decode(errors="replace"))
    except Exception:  # noqa: BLE001  a handler's fault; ctypes would print it in the middle of a launch
        pass


_NONE = ON_LOG()


def set_log(level: str = "info") -> None:
    """From now on the library's messages of a level and above go to the logger "culet" of Python's
    logging: "debug" (each plan with its kernel), "info" (caches, tuning, libraries) or "warning" (what
    was left out or replaced). "off", as at first, ends that. For the whole process.

        logging.basicConfig(level=logging.INFO)
        culet.set_log("info")
    """
    if level not in _LEVELS:
        raise InvalidArgument(f"level is {level!r}; give {', '.join(map(repr, _LEVELS))}")
    off = level == "off"
    check(LIBRARY.culet_set_log(_NONE if off else _pass_on, None, _LEVELS[level]))


atexit.register(set_log, "off")  # threads of the library must not call into a Python that is gone


def set_tracing(on: bool = True) -> None:
    """NVTX ranges around launches and nodes, named by their kernels, for NVIDIA's profilers; off unless
    CULET_NVTX is 1. Raises: Error (UNSUPPORTED) where the library was built without NVTX."""
    check(LIBRARY.culet_set_tracing(int(bool(on))))


_lost_files_explained = False


def explain_lost_files(exit_code: int = 0) -> None:
    """From the first call on: a checkpoint's file that gets shorter while it is mapped, which raises SIGBUS, is named
    on standard error before the process ends, with `exit_code` or, for 0, by the signal. Another handler stays."""
    global _lost_files_explained
    if not _lost_files_explained:
        check(LIBRARY.culet_explain_lost_files(exit_code))
        _lost_files_explained = True


class Coverage(NamedTuple):
    """How much of what was asked for was measured."""

    problems: int  # distinct ones that a kernel was chosen for
    measured: int  # of these: by this user, at this site, or shipped with culet

    def __str__(self) -> str:
        text = f"{self.measured} of {self.problems} products have a measured kernel"
        if self.measured < self.problems:
            text += ", the others a predicted one; culet tune measures them"
        return text


def coverage(device: str = "cpu") -> Coverage:
    """How many distinct problems this process's engine of a device has met, and how many of them with a
    measured choice."""
    found = _library.Coverage()
    check(LIBRARY.culet_engine_coverage(engine(place_of(device)).handle, byref(found)))
    return Coverage(found.problems, found.measured)
