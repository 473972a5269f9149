"""Scaled dot-product attention, fused (flash) where the backend has it: causal, grouped-query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sampling.call import Phase, register
from sampling.operators.base import FORWARD_BACKWARD, Operator

if TYPE_CHECKING:
    import torch

    from sampling.operators.workload import AutogradWorkload


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class Attention(Operator):
    """softmax(Q·Kᵀ/√d)·V for Q [batch, heads, seq, head_dim], K and V [batch, kv_heads, seq, head_dim].

    Forward is two products of 2·b·h·s²·d FLOPs; flash backward five of them, one to recompute the scores
    (Dao et al., FlashAttention, arXiv 2205.14135).
    """

    NAME: ClassVar[str] = "attention"
    KIND: ClassVar[str] = "attention"
    PHASES: ClassVar[tuple[Phase, ...]] = FORWARD_BACKWARD

    batch: int
    seq_len: int
    heads: int
    kv_heads: int
    head_dim: int
    causal: bool

    def flops(self, phase: Phase) -> float:
        one_product = 2.0 * self.batch * self.heads * self.seq_len**2 * self.head_dim
        return one_product * (2 if phase == "forward" else 5)

    def executed_flops(self, phase: Phase) -> float:
        seen = (self.seq_len + 1) / (2 * self.seq_len) if self.causal else 1.0
        return self.flops(phase) * seen

    def bytes_moved(self, phase: Phase) -> float:
        query = self.batch * self.seq_len * self.heads * self.head_dim
        key_value = self.batch * self.seq_len * self.kv_heads * self.head_dim
        forward = 2 * query + 2 * key_value
        # backward reads q, k, v, out and its gradient, and writes dq, dk, dv
        return float(self.item_bytes * (forward if phase == "forward" else 2 * forward))

    def build(self, device: torch.device) -> AutogradWorkload:
        from torch.nn.functional import scaled_dot_product_attention

        from sampling.operators.workload import COPIES, AutogradWorkload, Copy, leaf

        def copy() -> Copy:
            # [batch, seq, heads, d] seen transposed, as a projection's output is
            query = leaf(device, self.dtype, self.batch, self.seq_len, self.heads, self.head_dim)
            key = leaf(device, self.dtype, self.batch, self.seq_len, self.kv_heads, self.head_dim)
            value = leaf(device, self.dtype, self.batch, self.seq_len, self.kv_heads, self.head_dim)

            def forward() -> torch.Tensor:
                return scaled_dot_product_attention(
                    query.transpose(1, 2),
                    key.transpose(1, 2),
                    value.transpose(1, 2),
                    is_causal=self.causal,
                    enable_gqa=self.kv_heads != self.heads,
                )

            return Copy(forward=forward, inputs=[query, key, value])

        return AutogradWorkload([copy() for _ in range(COPIES)])
