"""The clock of a device, as its management library reports it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def device_clock_mhz(device: torch.device) -> float | None:
    """The multiprocessors' clock by nvidia-ml-py or amdsmi, whichever torch finds; None without one of them."""
    import torch

    try:
        clock_mhz = float(torch.cuda.clock_rate(device))
    except Exception:  # both libraries raise errors of their own, and neither need be installed
        return None
    return clock_mhz if clock_mhz > 0 else None
