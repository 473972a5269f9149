"""Noise of measured steps: the share of the machine that other processes took, which steps to omit for it, and how far the rest spread."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sampling.hardware.readings import OTHERS_LIMIT, PROC_STAT, busy_seconds
from sampling.number_text import whole_percent

TICKS_PER_WINDOW = 30
"""/proc/stat counts each core in whole ticks; over a span of 30 of them the rounding is 0.03 of it."""

TASKS = Path("/proc/self/task")

OTHERS, SPREAD = NOISES = ("other processes", "spread")
"""Kinds of noise: other processes disturbed most steps, or the steps differ too widely from one another."""
SPREAD_LIMIT = 0.2
"""Spread from which on steps are noisy. Those of an ordinary machine have one of 0.02 to 0.12; of such steps, 4 or more, fewer than 2 in
1000 measurements reach it (Gaussian)."""
MOST_WAITED = 0.9
"""Largest share of a step's time that counts as waited for a processor, since a step that mostly waits says nothing."""
DECILES = 2.563
"""Standard deviations of a Gaussian between its 10th and its 90th percentile."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """Seconds of CPU time so far: of everything on the machine, and of this process with all its threads; and the seconds that each of its
    threads was ready to run and waited for a processor."""

    machine_s: float
    own_s: float
    waiting_s: Mapping[str, float]

    @staticmethod
    def now() -> Usage:
        return Usage(
            machine_s=busy_seconds(PROC_STAT.read_text()), own_s=time.process_time(), waiting_s=waiting_seconds()
        )

    def since(self, before: Usage) -> Usage:
        """The seconds from another moment to this one."""
        return Usage(
            machine_s=self.machine_s - before.machine_s,
            own_s=self.own_s - before.own_s,
            waiting_s={
                thread: whole_s - before.waiting_s.get(thread, 0.0) for thread, whole_s in self.waiting_s.items()
            },
        )

    @property
    def waited_s(self) -> float:
        """Seconds of the thread that waited longest, for which the others wait in turn."""
        return max(self.waiting_s.values(), default=0.0)


def waiting_seconds() -> dict[str, float]:
    """Seconds that each thread of this process was ready and waited for a processor (Linux, Documentation/scheduler/sched-stats.rst); none
    where the kernel does not show them."""
    found = {}
    for path in TASKS.glob("*/schedstat"):
        with suppress(OSError, ValueError, IndexError):  # a thread that ended meanwhile
            found[path.parent.name] = int(path.read_text().split()[1]) / 1e9
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class StepUsage:
    """One step: its wall time, and the CPU seconds taken meanwhile by the whole machine and by all its ranks."""

    wall_s: float
    machine_s: float
    ranks_s: float
    waited_s: float = 0.0
    """Seconds that a thread of the rank that waited longest was ready and waited for a processor."""


def waited_share(steps: Sequence[StepUsage]) -> float:
    """Share of the steps' time in which their slowest rank waited for a processor that another process had.

    A thread also waits for the other threads of its own run, as it did when the rows of a profile were taken. It waited for other
    processes no longer than these ran.
    """
    waited_s = sum(step.waited_s for step in steps)
    others_s = max(0.0, sum(step.machine_s - step.ranks_s for step in steps))
    return min(MOST_WAITED, min(waited_s, others_s) / sum(step.wall_s for step in steps))


def usage_of(ranks: Sequence[Mapping[str, Any]]) -> list[StepUsage]:
    """Each step of a run by the reports of its ranks: the clock of rank 0, which sees the whole machine too, and the CPU time of all."""
    own_s = [sum(times) for times in zip(*(rank["own_s"] for rank in ranks), strict=True)]
    waited_s = [max(times) for times in zip(*(rank["waited_s"] for rank in ranks), strict=True)]
    return [
        StepUsage(wall_s=wall, machine_s=machine, ranks_s=own, waited_s=waited)
        for wall, machine, own, waited in zip(ranks[0]["wall_s"], ranks[0]["machine_s"], own_s, waited_s, strict=True)
    ]


def others_shares_here(steps: Sequence[StepUsage]) -> list[float]:
    """`others_shares` of steps that ran on this machine."""
    return others_shares(steps, cores=os.cpu_count() or 1, tick_s=1 / os.sysconf("SC_CLK_TCK"))


def others_shares(steps: Sequence[StepUsage], *, cores: int, tick_s: float) -> list[float]:
    """The least share of the machine, 0 to 1, that other processes took during each step.

    It is taken over the step and as many neighbours as make a span of TICKS_PER_WINDOW clock ticks, since a short step
    is finer than the kernel's accounting; one tick per core, the most that rounding may have added, is subtracted.
    """
    windows = [_window(steps, index, TICKS_PER_WINDOW * tick_s) for index in range(len(steps))]
    return [_share(window, cores, rounding_s=cores * tick_s) for window in windows]


def quiet_steps(shares: Sequence[float]) -> tuple[list[int], bool]:
    """Indices of the steps to keep, and whether the measurement is noisy as a whole.

    Steps beyond OTHERS_LIMIT are omitted, unless fewer than half would remain: then all stay, and it is noisy.
    """
    quiet = [index for index, share in enumerate(shares) if share <= OTHERS_LIMIT]
    if 2 * len(quiet) < len(shares):
        return list(range(len(shares))), True
    return quiet, False


def spread_between(p10: float, p90: float) -> float:
    """Standard deviation in log time of steps with these 10th and 90th percentiles, were they Gaussian: one slow step among ten moves it
    little, as it moves their median."""
    return math.log(p90 / p10) / DECILES


def noise_of(shares: Sequence[float], kept_us: Sequence[float]) -> str:
    """The kind of noise of a measurement, by others' shares of its steps and the times of those kept; empty for a quiet one."""
    if quiet_steps(shares)[1]:
        return OTHERS
    p10, p90 = np.percentile(kept_us, (10, 90))
    return SPREAD if spread_between(p10, p90) > SPREAD_LIMIT else ""


def noise_note(noise: str, of: str = "") -> str:
    """The note on noisy measurements of a kind; `of` names them where there are several."""
    of = f" of {of}" if of else ""
    if noise == OTHERS:
        return f"NOISY: other processes disturbed most steps{of}; none could be dropped: repeat it on a quiet machine"
    return (
        f"NOISY: the steps{of} differ widely (standard deviation above {whole_percent(SPREAD_LIMIT)}), though other processes took little: find what "
        "makes them differ, and repeat it"
    )


def noise_notes(noises: Sequence[tuple[str, str]]) -> list[str]:
    """A note for each kind of noise; `noises` are names of measurements, each with its kind, empty for a quiet one."""
    named = {kind: ", ".join(name for name, noise in noises if noise == kind) for kind in NOISES}
    return [noise_note(kind, named[kind]) for kind in NOISES if named[kind]]


def _window(steps: Sequence[StepUsage], index: int, span_s: float) -> Sequence[StepUsage]:
    first, last = index, index + 1
    while sum(step.wall_s for step in steps[first:last]) < span_s and (first > 0 or last < len(steps)):
        first, last = max(0, first - 1), min(len(steps), last + 1)
    return steps[first:last]


def _share(steps: Sequence[StepUsage], cores: int, *, rounding_s: float) -> float:
    others = sum(step.machine_s - step.ranks_s for step in steps) - rounding_s
    return min(1.0, max(0.0, others / (cores * sum(step.wall_s for step in steps))))
