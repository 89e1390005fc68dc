"""The plans that products keep, by everything that they depend on."""

import os
import threading

# Some 3.5 kB each. A model needs one for each weight and batch; a process whose weights or shapes
# never repeat must not grow for ever.
MAX_PLANS = 4096
PLANS = {}
_lock = threading.Lock()


def keep(key, plan):
    with _lock:
        while len(PLANS) >= MAX_PLANS:
            _drop_one()
        PLANS[key] = plan


def _drop_one():
    """Drops the oldest plan that was not used since its last turn: nearly the one that was not used
    for longest, and a use costs no more than a mark."""
    while True:
        oldest = next(iter(PLANS))
        plan = PLANS.pop(oldest)
        if not plan.used:
            return
        plan.used = False
        PLANS[oldest] = plan


def drop_unmeasured(problem):
    """Drops the plans of a problem that was tuned after they were made."""
    with _lock:
        for stale in [key for key, plan in PLANS.items()
                      if plan.problem == problem and not plan.measured]:
            del PLANS[stale]


def drop_all_unmeasured():
    """Drops the plans whose problems may have been measured elsewhere."""
    with _lock:
        for stale in [key for key, plan in PLANS.items() if not plan.measured]:
            del PLANS[stale]


def _after_fork():
    global _lock  # another thread may have held it
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
