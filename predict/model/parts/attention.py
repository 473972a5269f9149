"""Attention with grouped queries: over all earlier tokens, or over those in a window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from predict.model.parts.part import Mixer
from sampling.cells.matrices import Matrix, attention_matrices

if TYPE_CHECKING:
    from predict.model.spec import ModelSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class Attention(Mixer):
    """Its sizes are fields of the model itself."""

    NAME: ClassVar[str] = "attention"

    def matrices(self, model: ModelSpec) -> tuple[Matrix, ...]:
        return attention_matrices(
            hidden=model.hidden,
            heads=model.heads,
            kv_heads=model.kv_heads,
            head_dim=model.head_dim,
            query_gate=model.query_gate,
            qkv_bias=model.attention_bias,
            output_bias=model.output_bias,
        )

    def other_parameters(self, model: ModelSpec) -> int:
        """The norms of queries and keys, and the sinks."""
        normed = model.q_width + model.kv_width if model.qk_norm_all_heads else 2 * model.head_dim
        return normed * model.qk_norm + model.heads * model.sinks

    def score_width(self, model: ModelSpec) -> int:
        return model.heads * 2 * model.head_dim


def normed_heads(model: ModelSpec, tokens: int, heads: int) -> tuple[int, int]:
    """Rows and width of the norm of the queries, or keys, of these heads."""
    if model.qk_norm_all_heads:
        return tokens, heads * model.head_dim
    return tokens * heads, model.head_dim


def heads_on_rank(model: ModelSpec, tp: int) -> tuple[int, int]:
    """Query heads, and key and value heads: each rank has one of those at least."""
    return model.heads // tp, max(1, model.kv_heads // tp)
