"""autotune: measures the problems that its block meets."""

import math
import os
import threading
import time
import warnings
from typing import List, NamedTuple

from culet import _library
from culet._library import Error, InvalidArgument, no_pickle, shown
from culet._operand import HOST, flag
from culet._plans import drop_unmeasured

# A launch that takes longer gains or loses little under pdl, and only what is near the best of
# those without: so many launches, each with overlap and without, are enough to tell.
_LONG_US = 50
_LONG_CANDIDATES = 16


class Tuned(NamedTuple):
    """One problem that autotune met."""

    m: int
    n: int
    k: int
    kernel: str         # the choice's id
    time_us: float      # its median; the prediction when nothing was measured
    baseline_us: float  # the untuned choice's median in the same run
    measurements: int   # 0: the choice was known, or the budget was spent
    seconds: float      # that tuning took
    pdl: bool           # measured as a chain of programmatic dependent launches


def _seconds(name, value):
    """A float above 0, which may be infinite. Raises InvalidArgument."""
    try:
        found = float(value)
    except Exception:  # OverflowError of 10**400, and what an argument's own __float__ raises
        found = math.nan
    if not found > 0:
        raise InvalidArgument(f"{name} is {shown(value)}; give seconds above 0, math.inf for no limit")
    return found


class autotune:
    """Inside the block, this thread's first call of each problem measures the kernels and takes the
    fastest; later calls, in the block and after it, use that choice. On a GPU launches are
    measured twice, without and with pdl, whichever the call asks for.

    budget: seconds for all problems together; when it is spent, the others keep their untuned
    choice. persist: merge the choices into the cache file when the block ends (CULET_CACHE, else
    ~/.cache/culet/dispatch.jsonl; "off" keeps none). `results` has a Tuned for each problem.
    Tuning works on inputs and outputs of its own and waits for the device, so it refuses to run
    inside a graph capture. Ctrl-C ends it after the sample under way; what was measured until then
    is kept, and persisted.
    """

    __reduce_ex__ = no_pickle
    running = 0  # blocks open in all threads: what the hot path looks at
    _lock = threading.Lock()
    _local = threading.local()

    def __init__(self, budget: float = 30, persist: bool = False) -> None:
        self._left = _seconds("budget", budget)
        self._persist = flag("persist", persist)
        self._engines = {}
        self._met = set()
        self.results: List[Tuned] = []

    @classmethod
    def of_this_thread(cls):
        stack = getattr(cls._local, "stack", None)
        return stack[-1] if stack else None

    @classmethod
    def wants(cls, plan):
        """Whether this thread's block has yet to tune a plan's problem."""
        tuner = cls.of_this_thread()
        return tuner is not None and not plan.measured and plan.problem not in tuner._met

    def __enter__(self) -> "autotune":
        if not hasattr(autotune._local, "stack"):
            autotune._local.stack = []
        autotune._local.stack.append(self)
        with autotune._lock:
            autotune.running += 1
        return self

    def __exit__(self, kind, value, trace):
        autotune._local.stack.remove(self)
        with autotune._lock:
            autotune.running -= 1
        if self._persist:
            self._save(value)

    def _save(self, under_way):
        """Merges every engine's choices into the cache file; raises the first failure, unless an
        exception is under way."""
        failed = None
        for owner in self._engines.values():
            try:
                owner.save()
            except Error as error:
                failed = failed or error
        if failed is None:
            return
        if under_way is None:
            raise failed
        warnings.warn(f"culet's choices were not saved: {failed}", RuntimeWarning, stacklevel=4)

    def tune(self, owner, kind, problem, stream):
        """Measures a problem that this block meets for the first time, within what is left."""
        if kind in self._met:
            return
        if self._persist and owner.place not in self._engines:
            owner.check_save()  # a file that cannot be written is to cost no measuring
        self._met.add(kind)
        self._engines[owner.place] = owner
        renew = True  # also after an interrupt
        try:
            renew = self._tune(owner, kind, problem, stream)
        finally:
            if renew:
                drop_unmeasured(kind)

    def _tune(self, owner, kind, problem, stream):
        """Whether there is a measured choice now."""
        alone = self._measure(owner, kind, problem, stream, pdl=False)
        # Another kernel may be the best where launches overlap.
        if owner.place != HOST and alone is not None:
            self._measure(owner, kind, problem, stream, pdl=True,
                          candidates=_LONG_CANDIDATES if alone.time_us > _LONG_US else 0)
        return alone is not None

    def _measure(self, owner, kind, problem, stream, pdl, candidates=0):
        """The choice, or None when the budget did not suffice. candidates: at most, 0 for the
        library's own number."""
        problem = _library.Problem.from_buffer_copy(problem)
        problem.pdl = int(pdl)
        started = time.monotonic()
        choice = None
        if self._left > 0:
            try:
                choice = owner.tune(problem, self._left, stream, candidates)
            except Error as error:
                if error.status != "RESOURCE_EXHAUSTED":
                    raise
        took = time.monotonic() - started
        self._left -= took
        (m, k), n = kind.layouts[0][1][-2:], kind.layouts[2][1][-2]
        found = ((_library.text(choice.kernel), choice.time_us, choice.baseline_us, choice.measurements)
                 if choice is not None else ("", 0.0, 0.0, 0))
        self.results.append(Tuned(m, n, k, *found, took, pdl))
        return choice


def _after_fork():
    """Of the blocks that were open, a child has those of the thread that forked."""
    autotune._lock = threading.Lock()
    autotune.running = len(getattr(autotune._local, "stack", ()))


os.register_at_fork(after_in_child=_after_fork)
