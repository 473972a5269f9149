"""Clock and power of a device, as its management library reports them, if one is installed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

MILLIWATTS = 1e3


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """The multiprocessors' clock and the board's power at one moment; None if nothing reports them.

    A power reading is an average over up to a second, the sensor's own (nvmlDeviceGetPowerUsage).
    """

    clock_mhz: float | None = None
    power_w: float | None = None


def read_device(device: torch.device) -> Reading:
    """Read nvidia-ml-py or amdsmi, whichever torch finds."""
    import torch

    clock_mhz = _or_none(lambda: torch.cuda.clock_rate(device))
    power = _or_none(lambda: torch.cuda.power_draw(device))
    # torch returns each library's own unit: NVML's milliwatts, AMD SMI's watts
    watts = power / MILLIWATTS if power is not None and not torch.version.hip else power
    return Reading(clock_mhz=clock_mhz, power_w=watts)


def _or_none(ask: Callable[[], float]) -> float | None:
    try:
        value = float(ask())
    except Exception:  # both libraries raise errors of their own, and neither need be installed
        return None
    return value if value > 0 else None
