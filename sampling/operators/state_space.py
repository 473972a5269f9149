"""Mamba-2: the short causal convolution before a state-space recurrence, and the recurrence itself by chunks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sampling.arithmetic.operator import FORWARD_BACKWARD, ONE_STACK, BandwidthShare, Operator
from sampling.call import Phase, register

STEP_BYTES = 4
"""Steps and decays are fp32, whatever the dtype of the rest (mamba_ssm, ops/triton/ssd_combined.py)."""


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class CausalConv(Operator):
    """silu of a convolution over the last `width` tokens of x [batch, seq, channels], each channel by itself (Gu and Dao, Mamba,
    arXiv 2312.00752, section 3.4).

    Its products are counted with the layer's weights; memory bounds it, as a fused kernel reads and writes each element once.
    """

    NAME: ClassVar[str] = "causal_conv"
    PHASES: ClassVar[tuple[Phase, ...]] = FORWARD_BACKWARD
    COLUMNS: ClassVar[tuple[str, ...]] = ("batch", "seq_len", "channels")
    BANDWIDTH: ClassVar[BandwidthShare] = BandwidthShare(forward=0.78, backward=0.75, width=ONE_STACK)
    """The shares of SwiGLU."""

    batch: int
    seq_len: int
    channels: int
    width: int

    @property
    def elements(self) -> int:
        return self.batch * self.seq_len * self.channels

    def bytes_moved(self, phase: Phase) -> float:
        # backward reads the input and the gradient of the result, and writes the input's gradient
        return 1.0 * self.item_bytes * self.elements * (2 if phase == "forward" else 3)


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class StateSpaceScan(Operator):
    """hₜ = exp(Δₜ·a)·hₜ₋₁ + Δₜ·xₜ·Bₜᵀ, yₜ = hₜ·Cₜ + D·xₜ per head (Dao and Gu, Mamba-2, arXiv 2405.21060).

    x is [batch, seq, heads, head_dim], B and C [batch, seq, groups, state_dim], Δ [batch, seq, heads]; heads of a group share B and C. The
    work is the chunked form of section 6: within a chunk of Q tokens two products, C·Bᵀ once for each group, and two with the states
    that pass from chunk to chunk.
    """

    NAME: ClassVar[str] = "state_space_scan"
    KIND: ClassVar[str] = "attention"
    PHASES: ClassVar[tuple[Phase, ...]] = FORWARD_BACKWARD
    BANDWIDTH: ClassVar[BandwidthShare] = BandwidthShare(kernels=5)
    """Sums of steps, states of chunks, their passing on, C·Bᵀ, and the outputs (mamba_ssm, `_mamba_chunk_scan_combined_fwd`)."""

    batch: int
    seq_len: int
    heads: int
    head_dim: int
    groups: int
    state_dim: int
    chunk: int
    """Tokens of a chunk; the last one of a sequence is computed in full."""

    @property
    def chunks(self) -> int:
        """Chunks of a sequence."""
        return -(-self.seq_len // self.chunk)

    def flops(self, phase: Phase) -> float:
        inner = self.heads * self.head_dim
        of_token = 2 * self.chunk * (self.groups * self.state_dim + inner) + 4 * inner * self.state_dim
        return 1.0 * self.batch * self.chunks * self.chunk * of_token * (1 if phase == "forward" else 2)

    def bytes_moved(self, phase: Phase) -> float:
        inner, shared = self.heads * self.head_dim, 2 * self.groups * self.state_dim
        # backward reads the inputs and the gradient of the output, and writes the gradients of the inputs
        elements = 2 * inner + shared if phase == "forward" else 3 * inner + 2 * shared
        steps = STEP_BYTES * self.heads * (1 if phase == "forward" else 2)
        states = STEP_BYTES * inner * self.state_dim / self.chunk * 2
        return 1.0 * self.batch * self.seq_len * (self.item_bytes * elements + steps + states)
