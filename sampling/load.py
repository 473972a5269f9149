"""How much of this machine's CPU other processes take, so that timings made beside them can be left out."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

PROC_STAT = Path("/proc/stat")


@dataclass(frozen=True, slots=True)
class CpuClock:
    """Seconds at one moment: the wall, the whole machine's busy time, and this process's own."""

    wall_s: float
    busy_s: float | None
    own_s: float


def read_cpu_clock() -> CpuClock:
    return CpuClock(time.monotonic(), _busy_seconds(), time.process_time())


def _busy_seconds() -> float | None:
    """CPU seconds that all processes spent since boot; None where the system does not say."""
    if not PROC_STAT.is_file():
        return None
    with PROC_STAT.open() as stat:
        user, nice, system, _idle, _iowait, interrupts, soft_interrupts, *_ = map(int, stat.readline().split()[1:])
    ticks = user + nice + system + interrupts + soft_interrupts
    return float(ticks) / os.sysconf("SC_CLK_TCK")


def load_of_others(before: CpuClock, after: CpuClock, own_s: float) -> float:
    """Share of the machine's cores that others took between two clocks, given what our processes used in `own_s`."""
    if before.busy_s is None or after.busy_s is None:
        return 0.0
    cores = os.cpu_count() or 1
    elapsed = max(after.wall_s - before.wall_s, 1e-9)
    return max(0.0, (after.busy_s - before.busy_s - own_s) / (elapsed * cores))
