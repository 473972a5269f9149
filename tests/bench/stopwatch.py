"""Seconds of a piece of work, by the wall clock or of this process alone."""

import time
from collections.abc import Callable


def seconds(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds of one turn; with `time.process_time`, other load on the machine does not count."""
    start = clock()
    work()
    return clock() - start


def best_of(work: Callable[[], object], rounds: int) -> float:
    """Wall-clock seconds of the quickest turn."""
    return min(seconds(work) for _ in range(rounds))
