"""A dense MLP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from predict.model.parts.part import FeedForward
from sampling.cells.matrices import Matrix, mlp_matrices

if TYPE_CHECKING:
    from predict.model.spec import ModelSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class Dense(FeedForward):
    """Its sizes are fields of the model itself."""

    NAME: ClassVar[str] = "dense"

    def matrices(self, model: ModelSpec) -> tuple[Matrix, ...]:
        return mlp_matrices(hidden=model.hidden, width=model.ffn, gated=model.gated, bias=model.mlp_bias)
