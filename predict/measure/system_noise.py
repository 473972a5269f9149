"""The share of the machine that other processes took while a step ran, and which steps to omit for it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from sampling.hardware.cpu_load import OTHERS_LIMIT, PROC_STAT, busy_seconds

TICKS_PER_WINDOW = 30
"""/proc/stat counts each core in whole ticks; over a span of 30 of them the rounding is 0.03 of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """Seconds of CPU time so far: of everything on the machine, and of this process with all its threads."""

    machine_s: float
    own_s: float

    @staticmethod
    def now() -> Usage:
        return Usage(machine_s=busy_seconds(PROC_STAT.read_text()), own_s=time.process_time())


@dataclass(frozen=True, kw_only=True, slots=True)
class StepUsage:
    """One step: its wall time, and the CPU seconds taken meanwhile by the whole machine and by all its ranks."""

    wall_s: float
    machine_s: float
    ranks_s: float


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


def noise_note(about: str) -> str:
    """The note on a noisy measurement; `about` names it, for example "most steps" or "most steps of demo"."""
    return f"NOISY: other processes disturbed {about}; none could be dropped: repeat it on a quiet machine"


def _window(steps: Sequence[StepUsage], index: int, span_s: float) -> Sequence[StepUsage]:
    first, last = index, index + 1
    while sum(step.wall_s for step in steps[first:last]) < span_s and (first > 0 or last < len(steps)):
        first, last = max(0, first - 1), min(len(steps), last + 1)
    return steps[first:last]


def _share(steps: Sequence[StepUsage], cores: int, *, rounding_s: float) -> float:
    others = sum(step.machine_s - step.ranks_s for step in steps) - rounding_s
    return min(1.0, max(0.0, others / (cores * sum(step.wall_s for step in steps))))
