"""Scaled dot-product attention, fused (flash) where the backend has it: causal, grouped-query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sampling.arithmetic.arrays import log2, smaller
from sampling.arithmetic.operator import FORWARD_BACKWARD, Operator, physics_features, wave_features
from sampling.call import Phase, register
from sampling.hardware.cluster import Cluster


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class Attention(Operator):
    """softmax(Q·Kᵀ/√d)·V for Q [batch, heads, seq, head_dim], K and V [batch, kv_heads, seq, head_dim].

    Forward is two products of 2·b·h·s²·d FLOPs; the backward of flash attention is five, since it recomputes the scores
    (Dao et al., FlashAttention, arXiv 2205.14135).
    """

    NAME: ClassVar[str] = "attention"
    POWER_LIMITED: ClassVar[bool] = True
    KIND: ClassVar[str] = "attention"
    PHASES: ClassVar[tuple[Phase, ...]] = FORWARD_BACKWARD
    COLUMNS: ClassVar[tuple[str, ...]] = ("batch", "seq_len", "heads", "kv_heads", "head_dim")

    batch: int
    seq_len: int
    heads: int
    kv_heads: int
    head_dim: int
    causal: bool
    window: int = 0
    """Keys that a query attends to in sliding-window attention, its own included; 0 for all."""
    value_dim: int = 0
    """Size of a value head if it differs from `head_dim`, as in multi-head latent attention (128 and 192); otherwise 0."""
    kernel: str = ""
    """The backend: `flash`, `cudnn`, `efficient` or `math` of torch, `flash_attn` of the package, or another that a
    measurement names; empty for torch's own choice."""

    @property
    def value_head_dim(self) -> int:
        return self.value_dim or self.head_dim

    @property
    def seen(self) -> float:
        """Share of the query-key pairs that the mask keeps."""
        window: int = smaller(self.window or self.seq_len, self.seq_len)
        if not self.causal:
            return window / self.seq_len
        return window * (2 * self.seq_len - window + 1) / (2 * self.seq_len**2)

    def flops(self, phase: Phase) -> float:
        one_wide = 2.0 * self.batch * self.heads * self.seq_len**2
        scores, values = one_wide * self.head_dim, one_wide * self.value_head_dim
        return scores + values if phase == "forward" else 3 * scores + 2 * values

    def executed_flops(self, phase: Phase) -> float:
        return self.flops(phase) * self.seen

    def bytes_moved(self, phase: Phase) -> float:
        widths = self.head_dim + self.value_head_dim
        forward = self.batch * self.seq_len * widths * (self.heads + self.kv_heads)
        # backward reads q, k, v, out and its gradient, and writes dq, dk, dv
        return self.item_bytes * forward * (1.0 if phase == "forward" else 2.0)

    def features(self, phase: Phase, cluster: Cluster) -> dict[str, float]:
        # a thread block of a flash kernel holds a tile of one head's queries
        waves = wave_features(self.seq_len, 1, self.batch * self.heads, cluster.gpu.multiprocessors)
        return {
            **physics_features(self, phase, cluster),
            **waves,
            "seen": self.seen,
            "log2_heads_in_all": log2(self.batch * self.heads),
            "log2_heads_per_key": log2(self.heads / self.kv_heads),
        }
