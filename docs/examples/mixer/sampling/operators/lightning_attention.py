"""Lightning attention: linear attention with a fixed decay per head, computed block by block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sampling.arithmetic.operator import FORWARD_BACKWARD, Operator
from sampling.call import Phase, register


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class LightningRecurrence(Operator):
    """q, k and v [batch, seq_len, heads, head_dim] to an output of that shape (Qin et al., arXiv 2405.17381, algorithm 1).

    Within a block scores are products as in attention; between blocks a state [head_dim, head_dim] per head is carried on.
    """

    NAME: ClassVar[str] = "lightning_recurrence"
    KIND: ClassVar[str] = "attention"
    PHASES: ClassVar[tuple[Phase, ...]] = FORWARD_BACKWARD

    batch: int
    seq_len: int
    heads: int
    head_dim: int
    block: int

    def flops(self, phase: Phase) -> float:
        rows = self.batch * self.seq_len * self.heads
        forward = 4.0 * rows * self.head_dim * (self.block + self.head_dim)
        return forward if phase == "forward" else 2 * forward

    def bytes_moved(self, phase: Phase) -> float:
        # forward reads q, k and v and writes the output; backward reads its gradient too, and writes three
        tensor = self.item_bytes * self.batch * self.seq_len * self.heads * self.head_dim
        return float(tensor * (4 if phase == "forward" else 7))
