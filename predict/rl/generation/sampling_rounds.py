"""Rounds of dynamic sampling (DAPO): prompts are generated until enough of them have both right and wrong responses."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from predict.rl.run.section import ASYNC, RlSection


@dataclass(frozen=True, kw_only=True, slots=True)
class Rounds:
    """Rounds of sampling for one step, in shares of its prompts."""

    share: float
    """Prompts of one round."""
    count: float
    """Rounds. Engines of their own sample on without a round's end, so their number need not be whole."""

    @property
    def generated(self) -> float:
        """Prompts of all rounds."""
        return self.share * self.count


def rounds_of(section: RlSection) -> Rounds:
    """The rounds until the expected number of kept prompts fills a step."""
    kept = section.rollout.kept_share
    share = (section.rollout.round_prompts or section.prompts) / section.prompts
    needed = 1 / (share * kept)
    return Rounds(share=share, count=needed if section.placement == ASYNC else ceil(needed - 1e-9))
