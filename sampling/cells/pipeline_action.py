"""Cost of a pipeline action besides its compute: the schedule's book-keeping and the transfer of a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from sampling.arithmetic.operator import Composite
from sampling.call import Counted, Phase, register
from sampling.collectives.kinds import SendRecv

MICROBATCHES = 8
RANKS = 2


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineAction(Composite):
    """One forward or backward action of torch's pipelining between two ranks, on a stage with almost no compute.

    A run is a GPipe step of MICROBATCHES microbatches, in which m + p − 1 forward and as many backward actions follow one
    another.
    """

    NAME: ClassVar[str] = "pipeline_action"
    HEADING: ClassVar[str] = "p2p"
    PHASES: ClassVar[tuple[Phase, ...]] = ("step",)
    DONE_PER_RUN: ClassVar[int] = 2 * (MICROBATCHES + RANKS - 1)
    OVERHEAD: ClassVar[bool] = True

    size_bytes: int

    @property
    def group_size(self) -> int:
        return RANKS

    def parts(self, phase: Phase) -> Sequence[Counted]:
        return (Counted(call=SendRecv(size_bytes=self.size_bytes, ranks=RANKS, ranks_per_node=RANKS), phase="forward"),)
