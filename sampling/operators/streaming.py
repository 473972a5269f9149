"""Memory-bound passes that do not belong to a single layer: dropout, and passes over gradients and weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sampling.arithmetic.operator import FORWARD_BACKWARD, MEASURED, ONE_STACK, BandwidthShare, Operator
from sampling.call import Phase, register


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class Dropout(Operator):
    """Dropout of `count` elements. Forward reads and writes each, and writes a mask of one byte, which backward reads."""

    NAME: ClassVar[str] = "dropout"
    PHASES: ClassVar[tuple[Phase, ...]] = FORWARD_BACKWARD
    COLUMNS: ClassVar[tuple[str, ...]] = ("count",)
    BANDWIDTH: ClassVar[BandwidthShare] = BandwidthShare(forward=0.89, backward=0.89, width=ONE_STACK)
    """Attention dropout at 1.5 TB/s in published A100 runs."""

    count: int

    @property
    def elements(self) -> int:
        return self.count

    def bytes_moved(self, phase: Phase) -> float:
        return 1.0 * self.count * (2 * self.item_bytes + 1)


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class Stream(Operator):
    """One pass over `size_bytes`, half of them read and half written, such as adding a microbatch's gradients to earlier ones,
    or copying weights to the training precision. It is timed as c · x, whose backward is another such pass."""

    NAME: ClassVar[str] = "stream"
    PHASES: ClassVar[tuple[Phase, ...]] = FORWARD_BACKWARD
    COLUMNS: ClassVar[tuple[str, ...]] = ("size_bytes",)
    BANDWIDTH: ClassVar[BandwidthShare] = BandwidthShare(forward=0.89, backward=0.89, width=MEASURED)
    """Adding up gradients at 1.5 TB/s in published A100 runs."""

    size_bytes: int

    def bytes_moved(self, phase: Phase) -> float:
        return 1.0 * self.size_bytes
