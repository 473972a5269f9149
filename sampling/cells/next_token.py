"""The end of a model that generates, as one cell: final norm, logits of each sequence's last token, and a draw from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from sampling.arithmetic.operator import Composite
from sampling.call import Counted, Phase, register
from sampling.operators.gemm import Gemm
from sampling.operators.memory_bound import NORMS
from sampling.operators.vocabulary import CrossEntropy


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
