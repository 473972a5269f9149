"""Scores of responses by a rule, and their advantages within the group of their prompt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sampling.arithmetic.operator import BY_ANALOGY, BandwidthShare, Operator
from sampling.call import Phase, register

TOKEN_BYTES = 8
PASSES = 3
"""Reads of every token: the rule's comparison, its mask, and the mean over the response."""


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class GroupReward(Operator):
    """The share of a response's tokens that a rule wants, over [samples, tokens], less the mean of its group and over its
    deviation (GRPO, arXiv 2402.03300)."""

    NAME: ClassVar[str] = "group_reward"
    PHASES: ClassVar[tuple[Phase, ...]] = ("forward",)
    BANDWIDTH: ClassVar[BandwidthShare] = BandwidthShare(forward=0.5, backward=0.5, width=BY_ANALOGY, kernels=8)
    """The shares of other short chains of elementwise kernels."""

    samples: int
    tokens: int
    group: int
    """Responses to one prompt."""

    @property
    def elements(self) -> int:
        return self.samples * self.tokens

    def bytes_moved(self, phase: Phase) -> float:
        return float(PASSES * TOKEN_BYTES * self.elements)
