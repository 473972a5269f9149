"""Data parallelism: the last backward with its gradient reduction inside, and ZeRO-1's optimizer step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import ClassVar

from sampling.arithmetic.operator import Operator, add_terms
from sampling.call import Counted, Phase, register
from sampling.cells.layer import DenseLayer, LayerShape
from sampling.collectives.kinds import AllGather, AllReduce, Group
from sampling.hardware.cluster import Cluster
from sampling.operators.optimizer import STEP, AdamW


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class GradientCell(LayerShape):
    """The last microbatch of data parallelism: the backward of `layers` layers under torch's DDP, with its buckets and
    all-reduces. Isolated all-reduces miss the copies and the wait for the slowest rank.
    """

    NAME: ClassVar[str] = "gradient_cell"
    PHASES: ClassVar[tuple[Phase, ...]] = ("backward", "backward_accumulate")

    layers: int
    dp: int

    @property
    def group_size(self) -> int:
        return self.dp

    def gradient_bytes(self) -> int:
        return self.layers * self.weight_bytes()

    def resident_bytes(self) -> float:
        # gradients, and the buckets in which they are reduced
        return self.bytes_moved("forward") + 2.0 * self.gradient_bytes()

    def parts(self, phase: Phase) -> Sequence[Counted]:
        group = Group(self.dp, self.group_nodes)
        reduce = AllReduce(size_bytes=self.gradient_bytes(), ranks=group.ranks, ranks_per_node=group.ranks_per_node)
        shape = {field.name: getattr(self, field.name) for field in fields(DenseLayer)}
        layer = DenseLayer(**{**shape, "group_nodes": 1})
        return (Counted(call=layer, phase=phase, count=self.layers), Counted(call=reduce, phase="forward"))


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
