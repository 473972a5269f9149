"""A whole dense layer that computes one new token per sequence over cached keys and values, as plain torch generates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from sampling.arithmetic.operator import Operator
from sampling.call import Counted, Phase, register
from sampling.cells.layer import LayerShape
from sampling.operators.decode_attention import DecodeAttention


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class DecodeLayer(LayerShape):
    """One decoder layer on [batch, 1, hidden]: it writes the new key and value into the cache and attends to all of a sequence."""

    NAME: ClassVar[str] = "decode_layer"
    PHASES: ClassVar[tuple[Phase, ...]] = ("forward",)

    keys: int
    """Keys of each sequence, that of the new token included."""

    @property
    def group_size(self) -> int:
        return self.tp

    def attention_calls(self) -> list[tuple[Operator, int]]:
        """Projections, and attention over the cache between them."""
        query, key, _, output = self.attention_matrices()
        cached = DecodeAttention(
            dtype=self.dtype,
            batch=self.batch,
            keys=self.keys,
            heads=self.heads // self.tp,
            kv_heads=self.kv_heads // self.tp,
            head_dim=self.head_dim,
        )
        return [(self._gemm(query), 1), (self._gemm(key), 2), (cached, 1), (self._gemm(output), 1)]

    def parts(self, phase: Phase) -> Sequence[Counted]:
        return self.layer_parts(phase)
