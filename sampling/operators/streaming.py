"""Memory-bound passes that belong to no single layer: dropout, and what a step does to gradients and weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sampling.arithmetic.bandwidth import MEASURED, ONE_STACK, BandwidthShare
from sampling.arithmetic.operator import FORWARD_BACKWARD, Operator
from sampling.call import Phase
from sampling.catalogue import register


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class Dropout(Operator):
    """Dropout of `elements`: reads and writes each, and a mask of a byte, which the backward reads."""

    NAME: ClassVar[str] = "dropout"
    PHASES: ClassVar[tuple[Phase, ...]] = FORWARD_BACKWARD
    COLUMNS: ClassVar[tuple[str, ...]] = ("count",)
    BANDWIDTH: ClassVar[BandwidthShare] = BandwidthShare(forward=0.89, backward=0.89, width=ONE_STACK)
    """Attention dropout at 1.5 TB/s in published A100 runs."""

    count: int

    @property
    def elements(self) -> int:
        return self.count

    def flops(self, phase: Phase) -> float:
        return 0.0

    def bytes_moved(self, phase: Phase) -> float:
        return 1.0 * self.count * (2 * self.item_bytes + 1)


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class Stream(Operator):
    """One pass that reads a half of so many bytes and writes the other: adding a microbatch's gradients to those of
    earlier ones, a copy of the weights in the training precision. Timed as c · x; its backward is another such pass."""

    NAME: ClassVar[str] = "stream"
    PHASES: ClassVar[tuple[Phase, ...]] = FORWARD_BACKWARD
    COLUMNS: ClassVar[tuple[str, ...]] = ("size_bytes",)
    BANDWIDTH: ClassVar[BandwidthShare] = BandwidthShare(forward=0.89, backward=0.89, width=MEASURED)
    """Adding up gradients at 1.5 TB/s in published A100 runs."""

    size_bytes: int

    def flops(self, phase: Phase) -> float:
        return 0.0

    def bytes_moved(self, phase: Phase) -> float:
        return 1.0 * self.size_bytes
