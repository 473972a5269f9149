"""Offload: state that lies in the host's memory between phases, and crosses PCIe before and after each that needs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from predict.interval import Interval
from predict.rl.run.section import RlSection
from predict.rl.terms import HOST_GB_PER_S, HOST_HIGH, HOST_LOW

if TYPE_CHECKING:
    from predict.step.prediction import Prediction

BYTES_PER_US = 1e3
"""Bytes per µs of 1 GB/s."""


def offload_time(prediction: Prediction, section: RlSection, *, of: Sequence[str]) -> Interval:
    """The time in which a rank's share of this state comes and goes, of what the section offloads."""
    return moved_time(moved_bytes(prediction, section, of=of))


def moved_bytes(prediction: Prediction, section: RlSection, *, of: Sequence[str]) -> float:
    """Bytes of this state that cross PCIe both ways, of what the section offloads; with the parameters goes the reference."""
    worst = prediction.memory.worst
    sizes = {"parameters": worst.parameters, "optimizer": worst.optimizer, "reference": worst.parameters}
    away = {*section.offload} | ({"reference"} if "parameters" in section.offload else set())
    return float(sum(2 * sizes[name] for name in of if name in away))


def moved_time(bytes_moved: float) -> Interval:
    """The time of so many bytes between a GPU and the host."""
    return Interval(median=HOST_GB_PER_S, low=HOST_LOW, high=HOST_HIGH).scaled(BYTES_PER_US).dividing(bytes_moved)
