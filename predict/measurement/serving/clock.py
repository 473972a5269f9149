"""A clock that stands still while other processes have the core."""

from __future__ import annotations

import time
from pathlib import Path

SCHEDULER_TIMES = Path("/proc/thread-self/schedstat")
"""ns that the thread ran, ns that it waited for a core, and slices (Documentation/scheduler/sched-stats.rst)."""
LONGEST_NAP_S = 0.05


class Clock:
    """Seconds since its start, without those in which other processes kept this thread from running."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._kept = SCHEDULER_TIMES.open("rb", buffering=0) if SCHEDULER_TIMES.exists() else None
        self._waited_before = self._waited_s()

    @property
    def waited_s(self) -> float:
        """Seconds in which the thread was ready and had no core."""
        return self._waited_s() - self._waited_before

    def now_s(self) -> float:
        return time.perf_counter() - self._start - self.waited_s

    def _waited_s(self) -> float:
        if self._kept is None:
            return 0.0
        self._kept.seek(0)
        return int(self._kept.read().split()[1]) / 1e9

    def sleep(self, seconds: float) -> None:
        """Wait, for at most LONGEST_NAP_S."""
        time.sleep(min(LONGEST_NAP_S, max(0.0, seconds)))
