"""Attention: fused (flash) where the backend has it, of new tokens over a cache, and as separate kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from sampling.arithmetic.arrays import log2, smaller
from sampling.arithmetic.operator import COPIES, FORWARD_BACKWARD, Composite, Operator, physics_features, wave_features
from sampling.call import Counted, Phase, register
from sampling.hardware.cluster import Cluster
from sampling.operators.gemm import BatchedGemm
from sampling.operators.memory_bound import CausalSoftmax, MaskFill, Softmax


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


CACHED_IN_FEWER_BITS = ("fp8", "nvfp4")
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
    def compute_dtype(self) -> str:
        """Keys and values of fewer bits are widened as they are read."""
        return "bf16" if self.dtype in CACHED_IN_FEWER_BITS else self.dtype

    @property
    def seen(self) -> int:
        """Keys that are read per sequence."""
        read: int = smaller(self.window or self.keys, self.keys)
        return read

    @property
    def value_dim(self) -> int:
        return self.values_in_keys or self.head_dim

    def flops(self, phase: Phase) -> float:
        return 2.0 * self.batch * self.heads * (self.head_dim + self.value_dim) * self.seen

    def bytes_moved(self, phase: Phase) -> float:
        kept = self.head_dim + (0 if self.values_in_keys else self.head_dim)
        own = self.heads * (self.head_dim + self.value_dim)
        return 1.0 * self.operand_bytes * self.batch * (kept * self.kv_heads * self.seen + own)


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
