"""The end of a model as one cell: final norm and output projection, then cross-entropy in training, or a draw in generation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from sampling.arithmetic.operator import Composite, counted_in
from sampling.call import Counted, Phase, register
from sampling.cells.layer import CELL_PHASES
from sampling.collectives.kinds import Group, entering_group, summed_over_group
from sampling.operators.gemm import Gemm
from sampling.operators.memory_bound import NORMS
from sampling.operators.vocabulary import CrossEntropy


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class OutputHead(Composite):
    """Final norm, logits [batch·seq, vocab/tp] and their mean loss, which is vocabulary-parallel if tp > 1."""

    NAME: ClassVar[str] = "output_head"
    PHASES: ClassVar[tuple[Phase, ...]] = CELL_PHASES

    batch: int
    seq_len: int
    hidden: int
    vocab: int
    norm: str
    tp: int
    sp: bool
    group_nodes: int = 1
    """Nodes over which the group is spread."""

    @property
    def group_size(self) -> int:
        return self.tp

    def parts(self, phase: Phase) -> Sequence[Counted]:
        tokens = self.batch * self.seq_len
        vocab = self.vocab // self.tp
        calls = (
            NORMS[self.norm](dtype=self.dtype, tokens=tokens // (self.tp if self.sp else 1), hidden=self.hidden),
            Gemm(dtype=self.dtype, m=tokens, n=vocab, k=self.hidden),
            CrossEntropy(dtype=self.dtype, tokens=tokens, vocab=vocab),
        )
        operators = counted_in(phase, [(call, 1) for call in calls])
        if self.tp == 1 or phase == "backward_weight":
            return operators
        size = self.item_bytes * tokens * self.hidden
        group = Group(self.tp, self.group_nodes)
        entering = (
            entering_group(size, group, self.sp) if phase == "forward" else summed_over_group(size, group, self.sp)
        )
        # per token the maximum, the sum of exponentials and the target's logit, in fp32
        loss = summed_over_group(4 * tokens, group, False) * 3 if phase == "forward" else ()
        return (*operators, *entering, *loss)


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class NextToken(Composite):
    """Norm and logits [batch, vocab] of one token per sequence, and a token drawn from their softmax, which is a pass over them
    as a cross-entropy is."""

    NAME: ClassVar[str] = "next_token"
    PHASES: ClassVar[tuple[Phase, ...]] = ("forward",)

    batch: int
    hidden: int
    vocab: int
    norm: str

    def parts(self, phase: Phase) -> Sequence[Counted]:
        calls = (
            NORMS[self.norm](dtype=self.dtype, tokens=self.batch, hidden=self.hidden),
            Gemm(dtype=self.dtype, m=self.batch, n=self.vocab, k=self.hidden),
            CrossEntropy(dtype=self.dtype, tokens=self.batch, vocab=self.vocab),
        )
        return tuple(Counted(call=call, phase=phase) for call in calls)
