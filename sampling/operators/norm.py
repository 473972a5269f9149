"""RMSNorm and LayerNorm over the hidden dimension."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sampling.arithmetic.operator import WITH_WEIGHTS, Operator
from sampling.call import Phase
from sampling.catalogue import register


@dataclass(frozen=True, kw_only=True, slots=True)
class _Norm(Operator):
    """x [tokens, hidden] → the same shape; memory-bound."""

    PHASES: ClassVar[tuple[Phase, ...]] = WITH_WEIGHTS
    COLUMNS: ClassVar[tuple[str, ...]] = ("tokens", "hidden")

    tokens: int
    hidden: int

    @property
    def elements(self) -> int:
        return self.tokens * self.hidden

    def flops(self, phase: Phase) -> float:
        return 0.0

    def bytes_moved(self, phase: Phase) -> float:
        # forward and backward-weight pass over two tensors of the input's size, the input's gradient over three
        passes = {"forward": 2, "backward_weight": 2}.get(phase, 3)
        return 1.0 * self.item_bytes * passes * self.tokens * self.hidden


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class RMSNorm(_Norm):
    """γ·x/√(mean(x²)+ε) (Zhang and Sennrich, arXiv 1910.07467)."""

    NAME: ClassVar[str] = "rms_norm"


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class LayerNorm(_Norm):
    """γ·(x−μ)/√(σ²+ε)+β (Ba et al., arXiv 1607.06450)."""

    NAME: ClassVar[str] = "layer_norm"
