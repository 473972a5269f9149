"""Operators over the vocabulary: token embedding, cross-entropy, and the choice of the next token."""

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


@dataclass(frozen=True, kw_only=True, slots=True)
class _OverLogits(Operator):
    """Passes over the logits [requests, vocab] of the tokens that come next, in fp32 as engines compute them."""

    PHASES: ClassVar[tuple[Phase, ...]] = ("forward",)
    LOGIT_BYTES: ClassVar[int]
    """Bytes that are moved for each logit."""

    requests: int
    vocab: int

    def bytes_moved(self, phase: Phase) -> float:
        return float(self.LOGIT_BYTES * self.requests * self.vocab)


@register
class TokenDraw(_OverLogits):
    """A token of each request, drawn at a temperature (vLLM, v1/sample/sampler.py): logits in fp32 of those in 16 bits (6 bytes), divided
    by temperatures (8), softmax (8), exponential noise (4), their quotient (12) and its largest (4)."""

    __slots__ = ()

    NAME: ClassVar[str] = "token_draw"
    LOGIT_BYTES: ClassVar[int] = 42
    BANDWIDTH: ClassVar[BandwidthShare] = BandwidthShare(width=BY_ANALOGY, kernels=6)


@register
class RankedLogits(_OverLogits):
    """Logits with those beyond the top k, or the top p of probability, masked by sorting all of them (vLLM,
    v1/sample/ops/topk_topp_sampler.py, `apply_top_k_top_p_pytorch`).

    torch sorts the rows as one (ATen/native/cuda/Sort.cu, `segmented_sort_pairs_by_full_sort`): pairs of row and place (8 bytes), four
    passes of a radix sort by value and one by row, each of 12 bytes read and written (128 with their counts), and what is gathered in the
    end (24). Softmax, sum, comparisons, two masks and the scattering take 42 more.
    """

    __slots__ = ()

    NAME: ClassVar[str] = "ranked_logits"
    LOGIT_BYTES: ClassVar[int] = 202
    BANDWIDTH: ClassVar[BandwidthShare] = BandwidthShare(forward=0.6, width=BY_ANALOGY, kernels=30)
    """Published times of that function, of which none says its GPU (vLLM's pull requests 33538, 40376, 51507): 0.094 ms for one row of
    32,768 logits, 0.37 for 64 rows, 0.63 for 128, 1.69 for 512, and 1.13 for 64 rows of 131,072; on an H100 these come out 0.4 to 1.2
    times as long."""
