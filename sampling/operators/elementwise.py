"""Memory-bound operators of a transformer layer: activations, rotary embedding, residual add."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sampling.arithmetic.operator import FORWARD_BACKWARD, Operator
from sampling.call import Phase
from sampling.catalogue import register


@dataclass(frozen=True, kw_only=True, slots=True)
class _Elementwise(Operator):
    PHASES: ClassVar[tuple[Phase, ...]] = FORWARD_BACKWARD
    TENSORS: ClassVar[tuple[int, int]]
    """Tensors of `elements` that forward and backward must read or write."""

    def flops(self, phase: Phase) -> float:
        return 0.0

    def bytes_moved(self, phase: Phase) -> float:
        return 1.0 * self.item_bytes * self.elements * self.TENSORS[0 if phase == "forward" else 1]


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class SwiGLU(_Elementwise):
    """silu(gate) · up for two tensors [tokens, width] (Shazeer, arXiv 2002.05202)."""

    NAME: ClassVar[str] = "swiglu"
    COLUMNS: ClassVar[tuple[str, ...]] = ("tokens", "width")
    TENSORS: ClassVar[tuple[int, int]] = (3, 5)

    tokens: int
    width: int

    @property
    def elements(self) -> int:
        return self.tokens * self.width


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class Gelu(_Elementwise):
    """x·Φ(x) over [tokens, width]."""

    NAME: ClassVar[str] = "gelu"
    COLUMNS: ClassVar[tuple[str, ...]] = ("tokens", "width")
    TENSORS: ClassVar[tuple[int, int]] = (2, 3)

    tokens: int
    width: int

    @property
    def elements(self) -> int:
        return self.tokens * self.width


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class ResidualAdd(_Elementwise):
    """x + y over [tokens, hidden]. Its backward hands the gradient on, so it costs no pass of its own."""

    NAME: ClassVar[str] = "residual_add"
    COLUMNS: ClassVar[tuple[str, ...]] = ("tokens", "hidden")
    PHASES: ClassVar[tuple[Phase, ...]] = ("forward",)
    TENSORS: ClassVar[tuple[int, int]] = (3, 0)

    tokens: int
    hidden: int

    @property
    def elements(self) -> int:
        return self.tokens * self.hidden


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class RoPE(_Elementwise):
    """Rotary position embedding of [batch, seq, heads, head_dim] (Su et al., arXiv 2104.09864)."""

    NAME: ClassVar[str] = "rope"
    COLUMNS: ClassVar[tuple[str, ...]] = ("batch", "seq_len", "heads", "head_dim")
    TENSORS: ClassVar[tuple[int, int]] = (2, 2)

    batch: int
    seq_len: int
    heads: int
    head_dim: int

    @property
    def elements(self) -> int:
        return self.batch * self.seq_len * self.heads * self.head_dim
