"""A rank's share of one microbatch, as a framework keeps it."""

from __future__ import annotations

from dataclasses import dataclass

from predict.memory.memory_profile import MemoryProfile
from predict.workload.rank.share import RankShare

FP32 = 4
INDEX = 8
"""torch's int64."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """What one rank holds of a microbatch, as a framework keeps it."""

    rank: RankShare
    profile: MemoryProfile

    @property
    def item(self) -> int:
        """Bytes of an activation's element."""
        return self.rank.item_bytes

    @property
    def input_item(self) -> int:
        """Bytes of an element that is kept only as the input of a product."""
        return 1 if self.quantised else self.item

    @property
    def quantised(self) -> bool:
        return self.profile.fp8_inputs and self.rank.run.precision == "fp8"

    @property
    def tokens(self) -> int:
        return self.rank.tokens

    @property
    def rows(self) -> int:
        return self.rank.rows

    @property
    def hidden(self) -> int:
        return self.rank.model.hidden

    @property
    def tp(self) -> int:
        return self.rank.plan.tp

    @property
    def entering(self) -> int:
        """Tokens of its input that a column-parallel product keeps: torch's keeps them gathered."""
        return self.rows if self.profile.megatron else self.tokens

    @property
    def stream(self) -> float:
        """Bytes of the residual stream."""
        return self.item * self.rows * self.hidden
