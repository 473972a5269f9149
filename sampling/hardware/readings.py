"""The share of this machine's CPU that other processes take, so that timings made at the same time can be quarantined."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


PROC_STAT = Path("/proc/stat")


OTHERS_LIMIT = 0.10
"""Share of the machine's CPU time that others may take during a timing. On a quiet machine it stays below 0.03, and
medians begin to move at about 0.1."""


@dataclass(frozen=True, slots=True)
class CpuClock:
    """Wall-clock time, the machine's busy CPU time, and this process's CPU time, in seconds."""

    wall_s: float
    busy_s: float | None
    own_s: float


def read_cpu_clock() -> CpuClock:
    busy_s = busy_seconds(PROC_STAT.read_text()) if PROC_STAT.is_file() else None
    return CpuClock(time.monotonic(), busy_s, time.process_time())


def busy_seconds(stat: str) -> float:
    """CPU time over all cores that was neither idle nor waiting for I/O, from the text of /proc/stat (see proc(5)).

    Time that a hypervisor gave to another guest (steal) counts as busy, since our ranks did not get it.
    """
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, stat.split(maxsplit=9)[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def load_of_others(before: CpuClock, after: CpuClock, own_s: float) -> float:
    """Share of the machine's cores that others took between two readings; `own_s` is the CPU time of our processes."""
    if before.busy_s is None or after.busy_s is None:
        return 0.0
    cores = os.cpu_count() or 1
    elapsed = max(after.wall_s - before.wall_s, 1e-9)
    return max(0.0, (after.busy_s - before.busy_s - own_s) / (elapsed * cores))


MILLIWATTS = 1e3


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceReading:
    """The multiprocessors' clock and the board's power at one moment; None if nothing reports them.

    A power reading is an average over up to a second, the sensor's own (nvmlDeviceGetPowerUsage).
    """

    clock_mhz: float | None = None
    power_w: float | None = None


def read_device(device: torch.device) -> DeviceReading:
    """Read nvidia-ml-py or amdsmi, whichever torch finds."""
    import torch

    clock_mhz = _or_none(lambda: torch.cuda.clock_rate(device))
    power = _or_none(lambda: torch.cuda.power_draw(device))
    # torch returns each library's own unit: NVML's milliwatts, AMD SMI's watts
    watts = power / MILLIWATTS if power is not None and not torch.version.hip else power
    return DeviceReading(clock_mhz=clock_mhz, power_w=watts)


def _or_none(ask: Callable[[], float]) -> float | None:
    try:
        value = float(ask())
    except Exception:  # both libraries raise errors of their own, and neither need be installed
        return None
    return value if value > 0 else None
