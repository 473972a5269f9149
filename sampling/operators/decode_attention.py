"""Attention of one new token per sequence over the keys and values that are cached, as a serving engine decodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sampling.arithmetic.operator import Operator
from sampling.call import Phase, register

UNPACKED = "unpacked"
"""A kernel in which each query head reads the keys and values that it shares with others by itself, most often from the cache."""


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class DecodeAttention(Operator):
    """softmax(q·Kᵀ/√d)·V of `batch` sequences, each with one query per head over `keys` cached keys and values.

    It reads the cache once, so it is bound by memory whatever the number of heads that share keys.
    """

    NAME: ClassVar[str] = "decode_attention"
    KIND: ClassVar[str] = "attention"
    HEADING: ClassVar[str] = "attention"
    PHASES: ClassVar[tuple[Phase, ...]] = ("forward",)
    COLUMNS: ClassVar[tuple[str, ...]] = ("batch", "keys", "heads", "kv_heads", "head_dim")

    batch: int
    keys: int
    """Keys of each sequence, its own included."""
    heads: int
    kv_heads: int
    head_dim: int
    values_in_keys: int = 0
    """Width of the values where they are the leading part of the keys, as in latent attention whose ways up are absorbed into queries and
    outputs; 0 where values are kept apart, as wide as keys."""
    window: int = 0
    """Keys that a query attends to in sliding-window attention, its own included; 0 for all."""
    block: int = 0
    """Tokens of a block of the cache, in whose order keys do not lie in memory; 0 for keys in one piece, or where nobody says."""
    kernel: str = ""
    """UNPACKED, or another that a measurement names; empty for one that reads keys once for all heads that share them."""

    @property
    def seen(self) -> int:
        """Keys that are read per sequence."""
        return min(self.window, self.keys) if self.window else self.keys

    @property
    def value_dim(self) -> int:
        return self.values_in_keys or self.head_dim

    def flops(self, phase: Phase) -> float:
        return 2.0 * self.batch * self.heads * (self.head_dim + self.value_dim) * self.seen

    def bytes_moved(self, phase: Phase) -> float:
        kept = self.head_dim + (0 if self.values_in_keys else self.head_dim)
        own = self.heads * (self.head_dim + self.value_dim)
        return 1.0 * self.item_bytes * self.batch * (kept * self.kv_heads * self.seen + own)
