"""Sizes of one microbatch's tensors on one rank, as a framework keeps them."""

from __future__ import annotations

from dataclasses import dataclass

from predict.memory.profiles.memory_profile import MemoryProfile
from predict.model.spec import ModelSpec
from predict.rank.share import RankShare

FP32 = 4
INDEX = 8
"""Bytes of torch's int64."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """The variables of the formulas of the components."""

    rank: RankShare
    profile: MemoryProfile

    @property
    def model(self) -> ModelSpec:
        return self.rank.model

    @property
    def item(self) -> int:
        """Bytes per element of an activation."""
        return self.rank.item_bytes

    @property
    def input_item(self) -> int:
        """Bytes per element of a tensor that is kept only as the input of a product."""
        return 1 if self.fp8_inputs else self.item

    @property
    def fp8_inputs(self) -> bool:
        return self.profile.fp8_inputs and self.rank.run.precision == "fp8"

    @property
    def fused_norm(self) -> bool:
        return self.profile.fused_norm and self.rank.execution.fuse_rms_norm

    @property
    def fused_softmax(self) -> bool:
        return self.profile.fused_softmax and self.rank.execution.fuse_softmax

    @property
    def tokens(self) -> int:
        """Tokens that pass through the products of a rank."""
        return self.rank.tokens

    @property
    def rows(self) -> int:
        """Tokens that pass through the norms and residuals of a rank."""
        return self.rank.rows

    @property
    def input_rows(self) -> int:
        """Tokens of its input that a column-parallel product keeps; torch's keeps them gathered."""
        return self.rows if self.profile.megatron and self.rank.execution.gather_again else self.tokens

    @property
    def hidden(self) -> int:
        return self.model.hidden

    @property
    def tp(self) -> int:
        return self.rank.plan.tp

    @property
    def stream(self) -> float:
        """Bytes of the residual stream."""
        return self.item * self.rows * self.hidden
