"""Engines, plans and workspaces: what lives as long as the process."""

import ctypes
import os
import threading
import warnings
import weakref
from ctypes import byref, c_int32, c_uint64, pointer

from culet import _driver, _library
from culet._interrupt import call
from culet._library import LIBRARY, Error, check, create, text
from culet._operand import HOST

_ALIGNMENT = 256  # of a workspace


class Plan:
    """A culet_plan with what its launches need."""

    __slots__ = ("handle", "engine", "measured", "kernel", "workspace", "problem", "used",
                 "__weakref__")

    def __init__(self, engine, problem, kind):
        self.handle = create(LIBRARY.culet_plan_create, engine.handle, byref(problem))
        weakref.finalize(self, LIBRARY.culet_plan_destroy, self.handle).atexit = False
        self.engine = engine
        self.problem = kind
        self.used = False  # again, since _plans looked for one to drop
        choice, size = _library.Choice(), _library.WorkspaceSize()
        check(LIBRARY.culet_plan_choice(self.handle, byref(choice)))
        check(LIBRARY.culet_plan_workspace(self.handle, byref(size)))
        self.measured = bool(choice.measured)
        self.kernel = text(choice.kernel)
        need = (size.barriers, size.partials, size.tensormaps)
        self.workspace = need if any(need) else None
        if self.workspace is not None:
            engine.workspaces.require(need)


class Engine:
    """A culet_engine: one for each device that was used. Kept for the life of the process."""

    def __init__(self, place):
        self.place = place
        device = "cpu" if place == HOST else f"cuda:{place}"
        options = _library.EngineOptions(device=device.encode())
        self.handle = create(LIBRARY.culet_engine_create, byref(options))
        if note := text(LIBRARY.culet_engine_cache_note(self.handle)):
            warnings.warn(f"culet's cache of measured choices is not fully used: {note}",
                          RuntimeWarning, stacklevel=4)
        self.workspaces = HostWorkspaces(self) if place == HOST else DeviceWorkspaces(self)

    def captures(self, stream):
        """The number of the capture that a stream records into; 0 for none, and on the CPU."""
        capture = c_uint64()
        check(LIBRARY.culet_capture_id(self.handle, stream, byref(capture)))
        return capture.value

    def tune(self, problem, budget, stream, candidates=0):
        """Measures; the choice. Raises Error, RESOURCE_EXHAUSTED when the budget was too small.

        A thread of its own measures, so that this one can answer Ctrl-C: the sample under way is
        the last then, and the engine remembers what the samples until there support."""
        stop = c_int32(0)
        options = _library.TuneOptions(budget_s=budget, stream=stream, stop=pointer(stop),
                                       max_candidates=candidates)

        def measure():
            choice = _library.Choice()
            check(LIBRARY.culet_tune(self.handle, byref(problem), byref(options), byref(choice)))
            return choice

        return call(measure, stop, "culet-tune")

    def check_save(self):
        """Raises Error, with the path, for a cache file that save could not write."""
        check(LIBRARY.culet_engine_check_save(self.handle, None))

    def save(self):
        """Merges the choices into the cache file. Raises Error for a file that is no cache."""
        check(LIBRARY.culet_engine_save(self.handle, None))


_engines = {}
_engines_lock = threading.Lock()


def _after_fork():
    global _engines_lock  # another thread may have held it
    _engines_lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def engine(place):
    """The engine of a CUDA device's number, or of HOST."""
    found = _engines.get(place)
    if found is None:
        with _engines_lock:
            found = _engines.get(place)
            if found is None:
                found = _engines[place] = Engine(place)
    return found


def has_engine(place):
    """Whether `engine` has made the one of this place."""
    return place in _engines


def _larger(a, b):
    return tuple(map(max, a, b))


class _Workspace:
    """One culet_workspace and its memory."""

    def __init__(self, owner, size, allocate, stream):
        self.size = size
        spec = _library.WorkspaceSize(barriers=size[0], partials=size[1], tensormaps=size[2])
        total = c_uint64()
        check(LIBRARY.culet_workspace_bytes(byref(spec), byref(total)))
        self.memory, pointer = allocate(total.value)
        self.handle = create(LIBRARY.culet_workspace_create, owner.handle, byref(spec), pointer,
                             total, stream)
        weakref.finalize(self, LIBRARY.culet_workspace_destroy, self.handle).atexit = False

    def holds(self, need):
        (barriers, partials, maps), (b, p, m) = self.size, need  # a generator would cost more than all else
        return barriers >= b and partials >= p and maps >= m


class HostWorkspaces:
    """One for each thread: a launch on the CPU is over when it returns."""

    def __init__(self, owner):
        self._owner = owner
        self._need = (0, 0, 0)
        self._local = threading.local()

    def require(self, need):
        self._need = _larger(self._need, need)

    def get(self, need, stream):
        found = getattr(self._local, "workspace", None)
        if found is None or not found.holds(need):
            found = _Workspace(self._owner, _larger(self._need, need), self.allocate, stream)
            self._local.workspace = found
        return found.handle

    @staticmethod
    def allocate(count):
        """So many aligned bytes: what keeps them, and their address."""
        memory = ctypes.create_string_buffer(count + _ALIGNMENT)
        return memory, -(-ctypes.addressof(memory) // _ALIGNMENT) * _ALIGNMENT


class DeviceWorkspaces:
    """One for each stream, and one for each graph capture, whose graph keeps it for ever: graphs
    that were captured on one stream may run side by side. A capture may not allocate, so its
    workspace is laid by before, by planning and by every launch outside a capture."""

    def __init__(self, owner):
        self._owner = owner
        self._need = (0, 0, 0)
        self._of_stream, self._of_capture = {}, {}
        self._spare = None
        self._lock = threading.Lock()

    def require(self, need):
        with self._lock:
            self._need = _larger(self._need, need)

    def get(self, need, stream):
        capture = self._owner.captures(stream)
        with self._lock:
            if capture:
                found = self._captured(capture, stream)
            else:
                found = self._of_stream.get(stream)
                if found is None or not found.holds(need):
                    found = self._of_stream[stream] = self._make(stream)
                if self._spare is None or not self._spare.holds(self._need):
                    self._spare = self._make(stream)
                    _driver.synchronize(self._owner.place, stream)
            return found.handle

    def _captured(self, capture, stream):
        key = (capture, stream)
        if key not in self._of_capture:
            if self._spare is None:
                raise Error(
                    "FAILED_PRECONDITION",
                    "no workspace was laid by for this capture; call it once outside a "
                    "capture between two captures")
            self._of_capture[key], self._spare = self._spare, None
        return self._of_capture[key]

    def _make(self, stream):
        return _Workspace(self._owner, self._need, self.allocate, stream)

    def allocate(self, count):
        """So many aligned bytes: what keeps them, and their address."""
        return _driver.allocate(self._owner.place, count)
