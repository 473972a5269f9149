"""RMSNorm and LayerNorm over the hidden dimension."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sampling.arithmetic.operator import MEASURED, ONE_STACK, WITH_WEIGHTS, BandwidthShare, Operator
from sampling.call import Phase, register


@dataclass(frozen=True, kw_only=True, slots=True)
class _Norm(Operator):
    """x [tokens, hidden] → the same shape; memory-bound."""

    PHASES: ClassVar[tuple[Phase, ...]] = WITH_WEIGHTS
    COLUMNS: ClassVar[tuple[str, ...]] = ("tokens", "hidden")
    FUSIBLE: ClassVar[bool] = True

    tokens: int
    hidden: int

    @property
    def elements(self) -> int:
        return self.tokens * self.hidden

    def bytes_moved(self, phase: Phase) -> float:
        # forward and backward-weight pass over two tensors of the input's size, the input's gradient over three
        passes = {"forward": 2, "backward_weight": 2}.get(phase, 3)
        return 1.0 * self.item_bytes * passes * self.tokens * self.hidden


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class RMSNorm(_Norm):
    """γ·x/√(mean(x²)+ε) (Zhang and Sennrich, arXiv 1910.07467)."""

    NAME: ClassVar[str] = "rms_norm"
    BANDWIDTH: ClassVar[BandwidthShare] = BandwidthShare(forward=0.66, backward=0.71, width=ONE_STACK)
    """The share of a layer norm with the GH200's kernels: the samples' own RMSNorm is unfused, at 33–300 GB/s."""


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class LayerNorm(_Norm):
    """γ·(x−μ)/√(σ²+ε)+β (Ba et al., arXiv 1607.06450)."""

    NAME: ClassVar[str] = "layer_norm"
    BANDWIDTH: ClassVar[BandwidthShare] = BandwidthShare(
        forward=0.66, backward=0.71, width=MEASURED, by_architecture={"ampere": (0.66, 0.31)}
    )
    """A100 563 and 174 GB/s (Apex, 2022), GH200 1169 and 833; both passes of the backward together."""
