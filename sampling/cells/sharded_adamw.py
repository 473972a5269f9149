"""ZeRO-1's optimizer step over the ranks that share it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from sampling.arithmetic.operator import Operator, add_terms
from sampling.call import Counted, Phase, register
from sampling.collectives.kinds import AllGather, Group
from sampling.hardware.cluster import Cluster
from sampling.operators.optimizer import STEP, AdamW


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class ShardedAdamW(Operator):
    """AdamW on this rank's share of the tensors, then a broadcast of every share to all `dp` ranks, by torch's
    ZeroRedundancyOptimizer (ZeRO-1, Rajbhandari et al., arXiv 1910.02054).
    """

    NAME: ClassVar[str] = "sharded_adamw"
    HEADING: ClassVar[str] = "optimizer"
    PHASES: ClassVar[tuple[Phase, ...]] = STEP

    parameters: int
    tensors: int
    dp: int
    group_nodes: int = 1
    """Nodes over which the group is spread."""

    @property
    def group_size(self) -> int:
        return self.dp

    def bytes_moved(self, phase: Phase) -> float:
        return 7.0 * self.item_bytes * self.parameters / self.dp

    def terms(self, phase: Phase, cluster: Cluster) -> dict[str, float]:
        return add_terms(*(part.call.terms(part.phase, cluster) for part in self.parts(phase)))

    def parts(self, phase: Phase) -> Sequence[Counted]:
        own = AdamW(
            dtype=self.dtype, parameters=self.parameters // self.dp, tensors=max(1, self.tensors // self.dp), tp=1
        )
        group = Group(self.dp, self.group_nodes)
        gather = AllGather(
            size_bytes=self.item_bytes * self.parameters, ranks=group.ranks, ranks_per_node=group.ranks_per_node
        )
        return Counted(call=own, phase="step"), Counted(call=gather, phase="forward")
