"""Soft cap of scores: large values bend towards a limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from sampling.arithmetic.operator import FORWARD_BACKWARD, ONE_STACK, BandwidthShare, LayerSize, Operator
from sampling.call import Phase, register


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class SoftCap(Operator):
    """limit · tanh(x / limit) of x [tokens, width] (Gemma 2, arXiv 2408.00118, section 2)."""

    NAME: ClassVar[str] = "soft_cap"
    PHASES: ClassVar[tuple[Phase, ...]] = FORWARD_BACKWARD

    # the rest is optional: without it the operator has the defaults of `Operator`
    FUSIBLE: ClassVar[bool] = True
    BANDWIDTH: ClassVar[BandwidthShare] = BandwidthShare(forward=0.78, backward=0.88, width=ONE_STACK)
    """The shares of GELU."""

    tokens: int
    width: int

    @property
    def elements(self) -> int:
        return self.tokens * self.width

    def bytes_moved(self, phase: Phase) -> float:
        # forward reads x and writes y; backward reads y and its gradient and writes that of x
        return float(self.item_bytes * self.elements * (2 if phase == "forward" else 3))

    @classmethod
    def sampled_with(cls, layer: LayerSize) -> Sequence[Operator]:
        return (cls(dtype=layer.dtype, tokens=layer.tokens, width=layer.hidden),)
