"""Clocks for a run on the host; a device has its own timer (`sampling.timing.gpu_timer`)."""

import time
from collections.abc import Callable

Stopwatch = Callable[[Callable[[], None]], float]
"""Does the run; returns its µs."""


def wall_stopwatch(run: Callable[[], None]) -> float:
    """µs of wall-clock time, for communication and for compute on several threads."""
    start = time.perf_counter_ns()
    run()
    return (time.perf_counter_ns() - start) / 1e3


def thread_stopwatch(run: Callable[[], None]) -> float:
    """µs of this thread's CPU time, for compute on one thread: preemption does not count."""
    start = time.thread_time_ns()
    run()
    return (time.thread_time_ns() - start) / 1e3


def process_stopwatch(run: Callable[[], None]) -> float:
    """µs of the CPU time of this process with all its threads."""
    start = time.process_time_ns()
    run()
    return (time.process_time_ns() - start) / 1e3


def host_stopwatch(threads: int, together: bool) -> Stopwatch:
    return thread_stopwatch if threads == 1 and not together else wall_stopwatch
