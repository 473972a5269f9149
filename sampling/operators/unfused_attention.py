"""Attention as separate kernels, whose scores go through memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from sampling.arithmetic.operator import COPIES, FORWARD_BACKWARD, Composite
from sampling.call import Counted, Phase, register
from sampling.operators.gemm import BatchedGemm
from sampling.operators.memory_bound import CausalSoftmax, MaskFill, Softmax


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class UnfusedAttention(Composite):
    """Causal softmax(Q·Kᵀ/√d)·V of `matrices` = batch · heads; Q, K and V are [matrices, seq, head_dim].

    With `fused_softmax` mask and softmax are one compiled kernel, otherwise two.
    """

    NAME: ClassVar[str] = "unfused_attention"
    PHASES: ClassVar[tuple[Phase, ...]] = FORWARD_BACKWARD

    batch: int
    seq_len: int
    heads: int
    head_dim: int
    fused_softmax: bool

    @property
    def matrices(self) -> int:
        return self.batch * self.heads

    def parts(self, phase: Phase) -> Sequence[Counted]:
        kinds = (CausalSoftmax,) if self.fused_softmax else (MaskFill, Softmax)
        calls = (
            self._product(n=self.seq_len, k=self.head_dim, adds=True),
            *(kind(dtype=self.dtype, matrices=self.matrices, seq_len=self.seq_len) for kind in kinds),
            self._product(n=self.head_dim, k=self.seq_len, adds=False),
        )
        return tuple(Counted(call=call, phase=phase) for call in calls)

    def resident_bytes(self) -> float:
        # `bytes_moved` already counts a tensor twice that one part writes and the next reads
        return COPIES * self.bytes_moved("forward")

    def _product(self, *, n: int, k: int, adds: bool) -> BatchedGemm:
        return BatchedGemm(dtype=self.dtype, batch=self.matrices, m=self.seq_len, n=n, k=k, adds=adds)
