"""Clocks for a run on the host; a device has its own (`sampling.timing.gpu_clock`)."""

from __future__ import annotations

import time
from collections.abc import Callable

Stopwatch = Callable[[Callable[[], None]], float]
"""Do the run; µs that it took."""


def wall_stopwatch(run: Callable[[], None]) -> float:
    """µs by the wall clock: for communication, and compute on several threads."""
    start = time.perf_counter_ns()
    run()
    return (time.perf_counter_ns() - start) / 1e3


def thread_stopwatch(run: Callable[[], None]) -> float:
    """µs of this thread's CPU time: compute on one thread, untouched by preemption."""
    start = time.thread_time_ns()
    run()
    return (time.thread_time_ns() - start) / 1e3


def host_stopwatch(threads: int, together: bool) -> Stopwatch:
    return thread_stopwatch if threads == 1 and not together else wall_stopwatch
