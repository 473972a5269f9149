"""The indexer of DeepSeek's sparse attention, which picks the keys that each query sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sampling.arithmetic.operator import FORWARD_BACKWARD, Operator
from sampling.call import Phase, register

INDEX_BYTES = 4
"""Bytes of a picked key's index, and of a score."""


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class Indexer(Operator):
    """Σₕ wₕ·relu(qₕ·k) of each query [batch, seq, heads, head_dim] with each key [batch, seq, head_dim], and the `topk` largest of a
    query's (DeepSeek-V3.2, section 2.1). Scores stay on chip but for what the choice needs, one per pair."""

    NAME: ClassVar[str] = "indexer"
    KIND: ClassVar[str] = "attention"
    PHASES: ClassVar[tuple[Phase, ...]] = FORWARD_BACKWARD

    batch: int
    seq_len: int
    heads: int
    head_dim: int
    topk: int
    """Keys that a query sees."""

    def flops(self, phase: Phase) -> float:
        # a query's product with a key per head, and the sum over heads
        forward = 2.0 * self.batch * self.seq_len**2 * self.heads * (self.head_dim + 1)
        return forward * (1 if phase == "forward" else 2)

    def executed_flops(self, phase: Phase) -> float:
        return self.flops(phase) * (self.seq_len + 1) / (2 * self.seq_len)

    def bytes_moved(self, phase: Phase) -> float:
        own = self.item_bytes * self.batch * self.seq_len * (self.heads * (self.head_dim + 1) + self.head_dim)
        scores = INDEX_BYTES * self.batch * self.seq_len * (self.seq_len + min(self.topk, self.seq_len))
        return 1.0 * (own + scores) * (1 if phase == "forward" else 2)
