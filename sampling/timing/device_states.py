"""Timing a phase on a device in two states: rested (burst), and after a second of nothing else (sustained).

Near the power limit a device lowers its clock, so that a call alone after a pause is up to a sixth faster than the same
call in a training step that never pauses. Each state is a row of its own; which one a prediction takes, it says.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from sampling.call import Phase, State
from sampling.hardware.cpu_load import load_of_others, read_cpu_clock
from sampling.hardware.power import Reading
from sampling.timing.timer import Ranks, TimerSettings, Timing, combined, summary, uncertainty
from sampling.torch_work.workload_protocols import Workload

SLICES = 4
"""Into so many the heating is cut; the clock is read after each."""
MOST_HEATING = 3.0
"""Over the stated time, how long a device whose clock still moves is heated."""
SAME_CLOCK = 0.01
"""Relative change of the clock within which it counts as settled: one step of it is 15 MHz in 1,500."""
ALIKE = 3
"""Runs that must take as long as one another for the warm-up to end."""


class Instrument(Protocol):
    """What times runs on a device."""

    def chill(self, workload: Workload) -> None:
        """Have the workload's next run find cold caches."""

    def isolated(self, run: Callable[[], None]) -> float:
        """µs of a run on a device that has nothing else to do, the launching of its kernels included."""

    def queued(self, run: Callable[[], None]) -> Callable[[], float]:
        """Queue a run behind what is there; the function says its µs once the device is through."""

    def replayed(self, workload: Workload, phase: Phase) -> float | None:
        """µs of the phase without the launching of its kernels; None if it cannot be told."""

    def synchronize(self) -> None: ...

    def rest(self, seconds: float) -> None: ...

    def now_s(self) -> float: ...

    def reading(self) -> Reading: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    """A workload's phase on its instrument, and the ranks that time it.

    `as_built` is the workload as it was built: a capture that fails is no failure of the call.
    """

    workload: Workload
    as_built: Workload
    phase: Phase
    instrument: Instrument
    ranks: Ranks
    together: bool
    done_per_run: int
    settings: TimerSettings

    def isolated(self) -> float:
        self.workload.prepare(self.phase)
        self.instrument.chill(self.workload)
        self.instrument.synchronize()
        self.ranks.barrier()
        return self.instrument.isolated(self._run)

    def queued(self) -> Callable[[], float]:
        self.workload.prepare(self.phase)
        self.instrument.chill(self.workload)
        return self.instrument.queued(self._run)

    def _run(self) -> None:
        self.workload.run(self.phase)

    def combined(self, own_times: list[float]) -> list[float]:
        return combined(own_times, self.ranks, self.together, self.done_per_run)


def time_states(bench: Bench, *, sustained: bool) -> list[Timing]:
    """The phase in a burst, and on request sustained, after a warm-up that ends when its times have settled."""
    typical_us = warm_up(bench)
    timings = [_watched(bench, lambda: _burst(bench, typical_us))]
    if not bench.together:
        timings = [_with_launch(bench, timings[0])]
    if sustained:
        timings.append(_watched(bench, lambda: _sustained(bench)))
    return timings


def warm_up(bench: Bench) -> float:
    """Run until as many as ALIKE runs agree, past autotuning and the loading of kernels; µs of the fastest of them."""
    times: list[float] = []
    for _ in range(bench.settings.most_warmups):
        times.append(bench.isolated())
        last = times[-ALIKE:]
        apart = math.inf if len(last) < ALIKE else max(last) / max(min(last), 1e-9) - 1
        if bench.ranks.largest(apart) <= bench.settings.settle_error:
            break
    return bench.ranks.largest(min(times[-ALIKE:]))


def _watched(bench: Bench, work: Callable[[], Timing]) -> Timing:
    """With the share of the CPU that others took meanwhile."""
    before = read_cpu_clock()
    timing = work()
    after = read_cpu_clock()
    load = load_of_others(before, after, bench.ranks.total(after.own_s - before.own_s))
    return replace(timing, other_load=bench.ranks.largest(load))


def _burst(bench: Bench, typical_us: float) -> Timing:
    settings = bench.settings
    # as long a pause as two runs keeps the power low of those that are long themselves
    pause_s = max(settings.rest_seconds, 2 * typical_us / 1e6)
    times: list[float] = []
    for _ in range(settings.most_batches):
        own_times = []
        for _ in range(settings.burst_repeats):
            bench.instrument.rest(pause_s)
            own_times.append(bench.isolated())
        times += bench.combined(own_times)
        if uncertainty(sorted(times)) <= settings.median_error:
            break
    return _timing(times, bench.instrument.reading(), "burst")


def _with_launch(bench: Bench, burst: Timing) -> Timing:
    replayed_us = bench.instrument.replayed(bench.as_built, bench.phase)
    if replayed_us is None:
        return burst
    return replace(burst, launch_us=max(0.0, burst.median_us - replayed_us / bench.done_per_run))


def _sustained(bench: Bench) -> Timing:
    settings = bench.settings
    bench.ranks.barrier()
    of_one_s = _pace_s(bench)
    _heat(bench, of_one_s)
    repeats = int(min(settings.most_repeats, max(settings.least_repeats, settings.seconds / of_one_s)))
    reads = [bench.queued() for _ in range(repeats)]
    reading = bench.instrument.reading()
    bench.instrument.synchronize()
    return _timing(bench.combined([read() for read in reads]), reading, "sustained")


def _pace_s(bench: Bench) -> float:
    """Seconds from one run to the next, back to back, preparation included."""
    start_s = bench.instrument.now_s()
    for _ in range(bench.settings.least_repeats):
        bench.queued()
    bench.instrument.synchronize()
    elapsed_s = bench.instrument.now_s() - start_s
    return max(1e-6, bench.ranks.largest(elapsed_s / bench.settings.least_repeats))


def _heat(bench: Bench, of_one_s: float) -> None:
    """Run back to back for the stated time, and on until the clock stays where it is."""
    slice_s = bench.settings.sustained_seconds / SLICES
    repeats = max(1, math.ceil(slice_s / of_one_s))
    last: float | None = None
    for done in range(1, int(SLICES * MOST_HEATING) + 1):
        for _ in range(repeats):
            bench.queued()
        clock_mhz = bench.instrument.reading().clock_mhz
        bench.instrument.synchronize()
        moved = abs(clock_mhz / last - 1) if clock_mhz and last else 0.0
        last = clock_mhz
        if bench.ranks.largest(moved) <= SAME_CLOCK and done * repeats * of_one_s >= bench.settings.sustained_seconds:
            break


def _timing(times: list[float], reading: Reading, state: State) -> Timing:
    timing = summary(times, other_load=0.0, by_wall=False)
    return replace(timing, state=state, clock_mhz=reading.clock_mhz, power_w=reading.power_w)
