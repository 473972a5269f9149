"""Times a phase on a device in two states: rested (burst), and after a second of the same work (sustained).

Near the power limit a device lowers its clock, so that a call after a pause is up to a sixth faster than the same call in
a training step that never pauses. Each state is a row of its own.
"""

import math
from collections.abc import Callable
from dataclasses import replace

from sampling.call import State
from sampling.hardware.readings import DeviceReading, load_of_others, read_cpu_clock
from sampling.timing.launch_time import LAUNCHES, REPLAYS, WARM_UPS, Captures, time_launching
from sampling.timing.timed_phase import TimedPhase
from sampling.timing.timer import TimerSettings, Timing, summary, uncertainty

SLICES = 4
"""Slices of the heating; the clock is read after each."""
MOST_HEATING = 3.0
"""Longest heating of a device whose clock still moves, as a multiple of the stated time."""
SAME_CLOCK = 0.01
"""Relative change of the clock within which it counts as settled: one step of it is 15 MHz in 1,500."""
ALIKE = 3
"""Consecutive runs that must agree for the warm-up to end."""


def time_states(phase: TimedPhase, captures: Captures, *, sustained: bool) -> list[Timing]:
    """The burst timing, and on request the sustained one, after a warm-up that ends when its times have settled.

    Nothing where the seconds that are left are too few for all that is asked for.
    """
    typical_us = warm_up(phase)
    if phase.left_s() < device_phase_s(phase.settings, typical_us / 1e6, sustained=sustained):
        return []
    launch = time_launching(phase)
    hiding = replace(phase, wait_us=launch.wait_us)
    burst = _with_load(phase, lambda: _burst(hiding, typical_us))
    if not phase.together:
        burst = captures.with_launch(burst, phase, launch)
    if not sustained:
        return [burst]
    # back to back, the host runs ahead by itself unless launching takes longer than the work
    run_us = burst.median_us * phase.done_per_run
    behind = hiding if launch.host_us > run_us else phase
    return [burst, _with_load(phase, lambda: _sustained(behind))]


def warm_up(phase: TimedPhase) -> float:
    """Run until ALIKE consecutive runs agree, past autotuning and the loading of kernels, or no time is left; µs of the
    fastest of them."""
    times: list[float] = []
    for _ in range(phase.settings.most_warmups):
        times.append(phase.isolated())
        last = times[-ALIKE:]
        apart = math.inf if len(last) < ALIKE else max(last) / max(min(last), 1e-9) - 1
        if phase.ranks.largest(apart) <= phase.settings.settle_error or phase.left_s() <= 0:
            break
    return phase.ranks.largest(min(times[-ALIKE:]))


def _with_load(phase: TimedPhase, work: Callable[[], Timing]) -> Timing:
    """The timing of `work`, with the share of the CPU that other processes took meanwhile."""
    before = read_cpu_clock()
    timing = work()
    after = read_cpu_clock()
    load = load_of_others(before, after, phase.ranks.total(after.own_s - before.own_s))
    return replace(timing, other_load=phase.ranks.largest(load))


def _burst(phase: TimedPhase, typical_us: float) -> Timing:
    settings = phase.settings
    # a pause of two runs keeps the power low even where runs are long
    pause_s = max(settings.rest_seconds, 2 * typical_us / 1e6)
    times: list[float] = []
    for _ in range(settings.most_batches):
        own_times = []
        for _ in range(settings.burst_repeats):
            phase.timer.rest(pause_s)
            own_times.append(phase.isolated())
        times += phase.combined(own_times)
        if uncertainty(sorted(times)) <= settings.median_error or phase.left_s() <= 0:
            break
    return _timing(times, phase.timer.reading(), "burst")


def _sustained(phase: TimedPhase) -> Timing:
    settings = phase.settings
    phase.ranks.barrier()
    pace_s = _pace_s(phase)
    _heat(phase, pace_s)
    repeats = int(min(settings.most_repeats, max(settings.least_repeats, settings.seconds / pace_s)))
    reads = [phase.queued() for _ in range(repeats)]
    reading = phase.timer.reading()
    phase.timer.synchronize()
    return _timing(phase.combined([read() for read in reads]), reading, "sustained")


def _pace_s(phase: TimedPhase) -> float:
    """Seconds from one run to the next, back to back, preparation included."""
    start_s = phase.timer.now_s()
    for _ in range(phase.settings.least_repeats):
        phase.queued()
    phase.timer.synchronize()
    elapsed_s = phase.timer.now_s() - start_s
    return max(1e-6, phase.ranks.largest(elapsed_s / phase.settings.least_repeats))


def _heat(phase: TimedPhase, pace_s: float) -> None:
    """Run back to back for the stated time, and longer until the clock has settled."""
    slice_s = phase.settings.sustained_seconds / SLICES
    repeats = max(1, math.ceil(slice_s / pace_s))
    last: float | None = None
    for done in range(1, int(SLICES * MOST_HEATING) + 1):
        for _ in range(repeats):
            phase.queued()
        clock_mhz = phase.timer.reading().clock_mhz
        phase.timer.synchronize()
        moved = abs(clock_mhz / last - 1) if clock_mhz and last else 0.0
        last = clock_mhz
        if phase.ranks.largest(moved) <= SAME_CLOCK and done * repeats * pace_s >= phase.settings.sustained_seconds:
            break


def _timing(times: list[float], reading: DeviceReading, state: State) -> Timing:
    timing = summary(times, other_load=0.0, by_wall=False)
    return replace(timing, state=state, clock_mhz=reading.clock_mhz, power_w=reading.power_w)


def device_phase_s(settings: TimerSettings, run_s: float, *, sustained: bool) -> float:
    """Seconds for a phase of `run_s` on a device: its warm-up, launches and graph, one batch of bursts with their rests, and on
    request the heating and the repeats of the sustained state."""
    begun_s = (ALIKE + LAUNCHES + WARM_UPS + REPLAYS) * run_s
    bursts_s = settings.burst_repeats * (max(settings.rest_seconds, 2 * run_s) + run_s)
    if not sustained:
        return begun_s + bursts_s
    heating_s = max(settings.sustained_seconds, SLICES * run_s)
    repeats_s = max(min(settings.seconds, settings.most_repeats * run_s), settings.least_repeats * run_s)
    return begun_s + bursts_s + heating_s + repeats_s + settings.least_repeats * run_s
