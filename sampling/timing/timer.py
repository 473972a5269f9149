"""Times one phase of a built call: warm-up, repeats, quantiles, and the load of other processes meanwhile."""

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sampling.call import Phase, State
from sampling.hardware.readings import OTHERS_LIMIT, load_of_others, read_cpu_clock
from sampling.timing.stopwatch import Stopwatch, thread_stopwatch
from sampling.torch_work.workload_protocols import Workload

QUIET_DEVIATIONS = 3.0
"""Standard deviations of quiet repeats from their middle within which a repeat counts as quiet."""
LOWER_SHARE = 0.15
"""Share of all repeats that must be faster than the densest ones for those to be taken for disturbed."""
FEW_REPEATS = 5.0
"""By how much the shortest half of n normal values is too narrow: by a factor of about 1 + 5 / n for 5 to 60 of them (simulated)."""
LEAST_REACH = 0.01
"""Least relative distance from the middle that counts as disturbed: clocks tick, and repeats of one kernel are equal to the tick."""
LONGEST_CALL_S = 240.0
"""Time after which a process is taken to hang in a call: one that is compiled takes up to a minute or two."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TimerSettings:
    """The length of a phase's timing: batches of `seconds`, until the median is known to `median_error` (relative half-width of
    its 95 % interval). A timing disturbed by other processes is repeated, up to `attempts` times.

    On a device: a warm-up of at most `most_warmups` runs, until they agree to `settle_error`; batches of `burst_repeats`
    runs, each after a pause of `rest_seconds` or more; then `sustained_seconds` without a pause, and the repeats after them.
    """

    warmup_repeats: int = 3
    least_repeats: int = 7
    most_repeats: int = 60
    seconds: float = 0.3
    median_error: float = 0.05
    most_batches: int = 5
    attempts: int = 3
    most_warmups: int = 30
    settle_error: float = 0.05
    burst_repeats: int = 20
    rest_seconds: float = 0.01
    sustained_seconds: float = 1.0


FULL = TimerSettings()
QUICK = TimerSettings(
    least_repeats=5,
    most_repeats=30,
    seconds=0.06,
    most_batches=2,
    attempts=1,
    most_warmups=10,
    burst_repeats=7,
    rest_seconds=0.002,
    sustained_seconds=0.25,
)
"""For minutes of a lent GPU. `tests/bench/timers.py` measures what it costs in precision; docs/how-to/gpu-session.md has the figures."""
PRESETS: Mapping[str, TimerSettings] = {"full": FULL, "quick": QUICK}


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """Median, 10th and 90th percentile of the undisturbed repeats, in µs, and how many they are. `state` and the fields
    after it are those of `Sample`."""

    median_us: float
    low_us: float
    high_us: float
    repeats: int
    other_load: float
    """Share of the CPU that other processes took meanwhile."""
    by_wall: bool
    """Whether the wall clock was read; else the thread's CPU time, or a device's own clock."""
    median_error: float
    """Half-width of the median's 95 % interval, relative to the median."""
    state: State = "burst"
    clock_mhz: float | None = None
    power_w: float | None = None
    launch_us: float | None = None
    exposed_us: float | None = None


def unlimited() -> float:
    """The seconds that are left where nothing limits them."""
    return math.inf


class Ranks(Protocol):
    """The ranks that time a call together; a single process is a group of one."""

    def barrier(self) -> None: ...

    def largest(self, value: float) -> float: ...

    def total(self, value: float) -> float: ...

    def gather(self, values: list[float]) -> list[list[float]]: ...


def time_phase(
    workload: Workload,
    phase: Phase,
    *,
    stopwatch: Stopwatch,
    ranks: Ranks,
    together: bool,
    done_per_run: int,
    settings: TimerSettings,
    left_s: Callable[[], float] = unlimited,
) -> Timing | None:
    """Time `phase` until the machine is quiet or the attempts are spent; the quietest attempt counts.

    `left_s` gives the seconds that are left, the same on all ranks. A phase that is begun has fewer repeats where they are short;
    None where they are too short for the least of them.

    Ranks start every repeat together. `together` means that one call spans them, whose time is that of the slowest rank;
    otherwise each rank runs its own call beside busy neighbours, and the mean of their times is taken.
    """
    best: Timing | None = None
    for _ in range(settings.attempts):
        timing = _attempt(workload, phase, stopwatch, ranks, together, done_per_run, settings, left_s)
        if timing is None:
            break
        if best is None or timing.other_load < best.other_load:
            best = timing
        if best.other_load <= OTHERS_LIMIT:
            break
    return best


def _attempt(
    workload: Workload,
    phase: Phase,
    stopwatch: Stopwatch,
    ranks: Ranks,
    together: bool,
    done_per_run: int,
    settings: TimerSettings,
    left_s: Callable[[], float],
) -> Timing | None:
    def repeat() -> float:
        workload.prepare(phase)
        ranks.barrier()
        return stopwatch(lambda: workload.run(phase))

    start_s = time.monotonic()
    pilot = [repeat() for _ in range(settings.warmup_repeats)]
    # preparation counts: a backward may prepare longer than it runs
    pace_s = ranks.largest(time.monotonic() - start_s) / settings.warmup_repeats
    if left_s() < settings.least_repeats * pace_s:
        return None
    typical_s = ranks.largest(min(pilot)) / 1e6
    wanted, possible = settings.seconds / max(typical_s, 1e-9), left_s() / max(pace_s, 1e-9)
    batch = max(settings.least_repeats, int(min(settings.most_repeats, wanted, possible)))
    times: list[float] = []
    before = read_cpu_clock()
    for _ in range(settings.most_batches):
        own_times = [repeat() for _ in range(batch)]
        times += combined(own_times, ranks, together, done_per_run)
        if uncertainty(quiet_repeats(times)) <= settings.median_error or left_s() < batch * pace_s:
            break
    after = read_cpu_clock()
    load = ranks.largest(load_of_others(before, after, ranks.total(after.own_s - before.own_s)))
    return summary(times, other_load=load, by_wall=stopwatch is not thread_stopwatch)


def combined(own_times: list[float], ranks: Ranks, together: bool, done_per_run: int) -> list[float]:
    """µs of the call in each repeat, from the times of all ranks."""
    combine = max if together else statistics.fmean
    return [combine(of_ranks) / done_per_run for of_ranks in zip(*ranks.gather(own_times), strict=True)]


def summary(times: list[float], *, other_load: float, by_wall: bool) -> Timing:
    """Quantiles of the undisturbed repeats (µs, at least one)."""
    ordered = quiet_repeats(times)
    return Timing(
        median_us=statistics.median(ordered),
        low_us=ordered[round(0.1 * (len(ordered) - 1))],
        high_us=ordered[round(0.9 * (len(ordered) - 1))],
        repeats=len(ordered),
        other_load=other_load,
        by_wall=by_wall,
        median_error=uncertainty(ordered),
    )


def quiet_repeats(times: Sequence[float]) -> list[float]:
    """The repeats that nothing disturbed, in order of their time.

    Disturbances only slow a repeat. The quiet ones are the densest: about the shortest interval that holds half of all repeats (the
    shorth: Andrews et al., Robust Estimates of Location, 1972), within QUIET_DEVIATIONS of its middle by its own width. Where
    more than LOWER_SHARE are faster than all of these, the densest were disturbed together, and the faster ones are judged by themselves.
    """
    ordered = np.sort(times)
    while True:
        low, high = _quiet_range(ordered)
        faster = ordered[ordered < low]
        if len(faster) <= max(2, LOWER_SHARE * len(times)):
            quiet: list[float] = ordered[(ordered >= low) & (ordered <= high)].tolist()
            return quiet
        ordered = faster


def _quiet_range(ordered: NDArray[np.float64]) -> tuple[float, float]:
    """The bounds of the quiet repeats among those in order of time."""
    count = len(ordered)
    half = count // 2 + 1
    if half >= count:
        return float(ordered[0]), float(ordered[-1])
    widths = ordered[half - 1 :] - ordered[: count - half + 1]
    first = int(widths.argmin())
    middle = float(np.median(ordered[first : first + half]))
    # half of a normal's values lie within 0.6745 deviations of its middle; few values look closer together than they are
    deviation = float(widths[first]) / 2 / 0.6745 * (1 + FEW_REPEATS / count)
    reach = max(QUIET_DEVIATIONS * deviation, LEAST_REACH * middle)
    return middle - reach, middle + reach


def uncertainty(times: list[float]) -> float:
    """Relative half-width of the median's 95 % interval, by order statistics, which assume no shape of the noise."""
    middle, reach = (len(times) - 1) / 2, 0.98 * math.sqrt(len(times))
    low, high = times[max(0, math.floor(middle - reach))], times[min(len(times) - 1, math.ceil(middle + reach))]
    return (high - low) / 2 / max(statistics.median(times), 1e-9)


def cpu_phase_s(settings: TimerSettings, run_s: float) -> float:
    """Seconds for a phase of `run_s` on a CPU: one batch, or the least repeats where they take longer."""
    return max(settings.seconds, (settings.warmup_repeats + settings.least_repeats) * run_s)
