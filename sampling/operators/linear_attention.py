"""Linear attention with a state of fixed size: the Gated DeltaNet recurrence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sampling.arithmetic.operator import FORWARD_BACKWARD, Operator
from sampling.call import Phase, register

GATE_BYTES = 4


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class GatedDelta(Operator):
    """Sₜ = αₜ·Sₜ₋₁·(1 − βₜ·kₜ·kₜᵀ) + βₜ·vₜ·kₜᵀ, oₜ = Sₜ·qₜ (Yang et al., Gated Delta Networks, arXiv 2412.06464).

    q and k are [batch, seq, heads, head_dim], v [batch, seq, value_heads, value_dim]; the gates α (log, fp32) and β are
    [batch, seq, value_heads]. The kernel is the chunked one of flash-linear-attention.

    FLOPs are those of the recurrence: three products of head_dim × value_dim per token and value head, twice that backward.
    The products within a chunk are extra.
    """

    NAME: ClassVar[str] = "gated_delta"
    KIND: ClassVar[str] = "attention"
    PHASES: ClassVar[tuple[Phase, ...]] = FORWARD_BACKWARD

    batch: int
    seq_len: int
    heads: int
    value_heads: int
    head_dim: int
    value_dim: int

    def flops(self, phase: Phase) -> float:
        state = self.value_heads * self.head_dim * self.value_dim
        return 6.0 * self.batch * self.seq_len * state * (1 if phase == "forward" else 2)

    def bytes_moved(self, phase: Phase) -> float:
        keys, values = 2 * self.heads * self.head_dim, self.value_heads * self.value_dim
        gates = (GATE_BYTES + self.item_bytes) * self.value_heads
        # backward reads q, k, v and the gradient of the output, and writes the gradients of the first three
        of_token = (
            self.item_bytes * (keys + 2 * values) + gates
            if phase == "forward"
            else self.item_bytes * (2 * keys + 3 * values) + 2 * gates
        )
        return float(self.batch * self.seq_len * of_token)
