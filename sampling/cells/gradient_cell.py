"""The last backward of data parallelism: layers under torch's DDP, gradient reduction inside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import ClassVar

from sampling.call import Counted, Phase, register
from sampling.cells.layer import DenseLayer, LayerShape
from sampling.collectives.kinds import AllReduce, Group


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
