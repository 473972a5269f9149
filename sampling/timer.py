"""Timing one phase of a built call: warm-up, repeats, quantiles, and the load of others meanwhile."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from sampling.call import Phase, Workload
from sampling.load import OTHERS_LIMIT, load_of_others, read_cpu_clock

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True, slots=True)
class TimerSettings:
    """How long a phase is timed: a batch of `seconds`, and more of them until the median is known to `median_error`
    (relative half-width, 95 %). A timing beside other processes' load is tried again, up to `attempts` times.
    """

    warmup_repeats: int = 3
    least_repeats: int = 7
    most_repeats: int = 60
    seconds: float = 0.3
    median_error: float = 0.05
    most_batches: int = 5
    attempts: int = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """Median, 10th and 90th percentile of the repeats, the share of the CPU that others took meanwhile,
    whether the wall clock was read (else the thread's CPU time), and the half-width of the median's 95 % interval
    relative to the median.
    """

    median_us: float
    low_us: float
    high_us: float
    repeats: int
    other_load: float
    by_wall: bool
    median_error: float


class Ranks(Protocol):
    """The ranks that time a call together; a lone process is a group of one."""

    def barrier(self) -> None: ...

    def largest(self, value: float) -> float: ...

    def total(self, value: float) -> float: ...

    def gather(self, values: list[float]) -> list[list[float]]: ...


Stopwatch = Callable[[Callable[[], None]], float]


def time_phase(
    workload: Workload,
    phase: Phase,
    *,
    stopwatch: Stopwatch,
    ranks: Ranks,
    together: bool,
    done_per_run: int,
    settings: TimerSettings,
) -> Timing:
    """Time `phase` until it is quiet or the attempts are spent; the quietest attempt counts.

    Ranks start every repeat together. `together` means that one call spans them (its time is the slowest rank's);
    otherwise each does its own, as busy neighbours, and the mean of their times is taken.
    """
    best: Timing | None = None
    for _ in range(settings.attempts):
        timing = _attempt(workload, phase, stopwatch, ranks, together, done_per_run, settings)
        if best is None or timing.other_load < best.other_load:
            best = timing
        if best.other_load <= OTHERS_LIMIT:
            break
    assert best is not None
    return best


def _attempt(
    workload: Workload,
    phase: Phase,
    stopwatch: Stopwatch,
    ranks: Ranks,
    together: bool,
    done_per_run: int,
    settings: TimerSettings,
) -> Timing:
    def once() -> float:
        workload.prepare(phase)
        ranks.barrier()
        return stopwatch(lambda: workload.run(phase))

    pilot = [once() for _ in range(settings.warmup_repeats)]
    typical_s = ranks.largest(min(pilot)) / 1e6
    batch = int(min(settings.most_repeats, max(settings.least_repeats, settings.seconds / max(typical_s, 1e-9))))
    combine = max if together else statistics.fmean
    times: list[float] = []
    before = read_cpu_clock()
    for _ in range(settings.most_batches):
        own_times = [once() for _ in range(batch)]
        times += [combine(of_ranks) / done_per_run for of_ranks in zip(*ranks.gather(own_times), strict=True)]
        if _median_error(sorted(times)) <= settings.median_error:
            break
    after = read_cpu_clock()
    times.sort()
    return Timing(
        median_us=statistics.median(times),
        low_us=times[round(0.1 * (len(times) - 1))],
        high_us=times[round(0.9 * (len(times) - 1))],
        repeats=len(times),
        other_load=ranks.largest(load_of_others(before, after, ranks.total(after.own_s - before.own_s))),
        by_wall=stopwatch is not thread_stopwatch,
        median_error=_median_error(times),
    )


def _median_error(times: list[float]) -> float:
    """Relative half-width of the median's 95 % interval, from order statistics: no shape of noise is assumed."""
    middle, reach = (len(times) - 1) / 2, 0.98 * math.sqrt(len(times))
    low, high = times[max(0, math.floor(middle - reach))], times[min(len(times) - 1, math.ceil(middle + reach))]
    return (high - low) / 2 / statistics.median(times)


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


def device_stopwatch(device: torch.device) -> Stopwatch:
    """µs between two events on the device's stream (CUDA or HIP)."""
    import torch

    def stopwatch(run: Callable[[], None]) -> float:
        start, end = (torch.Event(device=device, enable_timing=True) for _ in range(2))
        torch.cuda.synchronize(device)
        start.record()
        run()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end) * 1e3)

    return stopwatch


def choose_stopwatch(device: torch.device, threads: int, together: bool) -> Stopwatch:
    if device.type != "cpu":
        return device_stopwatch(device)
    return thread_stopwatch if threads == 1 and not together else wall_stopwatch
