"""Multi-head latent attention of DeepSeek (arXiv 2405.04434): queries, keys and values from projections of low rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from predict.model.parts.part import Mixer
from sampling.cells.matrices import Matrix

if TYPE_CHECKING:
    from predict.model.spec import ModelSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class LatentAttention(Mixer):
    """Tensor parallelism splits the up-projections by heads and leaves the down-projections whole."""

    NAME: ClassVar[str] = "latent_attention"

    q_rank: int
    """Width of the compressed queries; 0 where they are not compressed."""
    kv_rank: int
    """Width of the compressed keys and values."""
    nope_dim: int
    """Width of a head's queries and keys without position."""
    rope_dim: int
    """Width of a head's rotated queries, and of the one rotated key that all heads share."""
    value_dim: int
    """Width of a head's values."""

    @property
    def query_dim(self) -> int:
        """Width of a head's queries, and of its keys."""
        return self.nope_dim + self.rope_dim

    def matrices(self, model: ModelSpec) -> tuple[Matrix, ...]:
        hidden, heads, bias = model.hidden, model.heads, model.attention_bias
        q_down = (Matrix(product="q_down", outputs=self.q_rank, inputs=hidden, bias=bias),) if self.q_rank else ()
        kv_width = self.nope_dim + self.value_dim
        return (
            *q_down,
            Matrix(
                product="q_up",
                outputs=heads * self.query_dim,
                inputs=self.q_rank or hidden,
                split="outputs",
                head=self.query_dim,
            ),
            Matrix(product="kv_down", outputs=self.kv_rank + self.rope_dim, inputs=hidden, bias=bias),
            Matrix(product="kv_up", outputs=heads * kv_width, inputs=self.kv_rank, split="outputs", head=kv_width),
            Matrix(product="proj", outputs=hidden, inputs=heads * self.value_dim, split="inputs", bias=bias),
        )

    def other_parameters(self, model: ModelSpec) -> int:
        """The norms of the compressed queries, keys and values."""
        return self.q_rank + self.kv_rank

    def score_width(self, model: ModelSpec) -> int:
        return model.heads * (self.query_dim + self.value_dim)
