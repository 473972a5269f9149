"""Operators over the vocabulary: token embedding and cross-entropy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from sampling.arithmetic.operator import BY_ANALOGY, FORWARD_BACKWARD, ONE_STACK, BandwidthShare, Operator, add_terms
from sampling.call import Counted, Phase, register
from sampling.collectives.kinds import Group, entering_group, summed_over_group
from sampling.hardware.cluster import Cluster


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class Embedding(Operator):
    """Look-up of [batch, seq] token ids in a [vocab, hidden] table; backward writes the whole dense gradient.

    With tp > 1 the rows of the table are spread over the group: each rank looks up the tokens that it has, and the results
    are summed (reduce-scattered along the sequence with sp), by torch's DTensor.
    """

    NAME: ClassVar[str] = "embedding"
    PHASES: ClassVar[tuple[Phase, ...]] = ("forward", "backward", "backward_accumulate")
    BANDWIDTH: ClassVar[BandwidthShare] = BandwidthShare(forward=0.45, backward=0.5, width=BY_ANALOGY, kernels=3)
    """A value between A100 172 GB/s (with masks of a parallel table) and GH200 1720; the gradient's table is zeroed first."""

    batch: int
    seq_len: int
    vocab: int
    hidden: int
    tp: int
    sp: bool
    group_nodes: int = 1
    """Nodes over which the group is spread."""

    @property
    def group_size(self) -> int:
        return self.tp

    def bytes_moved(self, phase: Phase) -> float:
        tokens = self.batch * self.seq_len
        table_rows = self.vocab // self.tp
        rows, table = tokens * self.hidden, table_rows * self.hidden
        # a row of the table that stays in a cache is read once, however many tokens have it
        distinct = min(tokens, table_rows) * self.hidden
        elements = {"forward": rows + distinct, "backward": rows + table, "backward_accumulate": rows + 4 * table}[
            phase
        ]
        return float(self.item_bytes * elements)

    def terms(self, phase: Phase, cluster: Cluster) -> dict[str, float]:
        if self.tp == 1:
            return {f"{self.KIND}_memory": self.bytes_moved(phase) / cluster.gpu.bytes_per_us()}
        return add_terms(*(part.call.terms(part.phase, cluster) for part in self.parts(phase)))

    def parts(self, phase: Phase) -> Sequence[Counted]:
        if self.tp == 1:
            return ()
        size = self.item_bytes * self.batch * self.seq_len * self.hidden
        group = Group(self.tp, self.group_nodes)
        reduce = summed_over_group(size, group, self.sp) if phase == "forward" else entering_group(size, group, self.sp)
        own = replace(self, vocab=self.vocab // self.tp, tp=1, sp=False, group_nodes=1)
        return (Counted(call=own, phase=phase), *reduce)


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class CrossEntropy(Operator):
    """Mean cross-entropy of logits [tokens, vocab], in fp32 as training stacks compute it."""

    NAME: ClassVar[str] = "cross_entropy"
    PHASES: ClassVar[tuple[Phase, ...]] = FORWARD_BACKWARD
    FUSIBLE: ClassVar[bool] = True
    BANDWIDTH: ClassVar[BandwidthShare] = BandwidthShare(forward=0.2, backward=0.62, width=ONE_STACK, kernels=4)
    """A100 127 and 421 GB/s of fp16 logits, GH200 216 and 619: unfused passes in fp32; geometric means."""

    tokens: int
    vocab: int

    def bytes_moved(self, phase: Phase) -> float:
        return float((self.item_bytes + 4) * self.tokens * self.vocab)
