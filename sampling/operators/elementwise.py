"""Memory-bound operators of a transformer layer: activations, rotary embedding, residual add."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sampling.arithmetic.operator import BY_ANALOGY, FORWARD_BACKWARD, MEASURED, ONE_STACK, BandwidthShare, Operator
from sampling.call import Phase, register


@dataclass(frozen=True, kw_only=True, slots=True)
class _Elementwise(Operator):
    PHASES: ClassVar[tuple[Phase, ...]] = FORWARD_BACKWARD
    FUSIBLE: ClassVar[bool] = True
    TENSORS: ClassVar[tuple[int, int]]
    """Tensors of `elements` that forward and backward must read or write."""

    def bytes_moved(self, phase: Phase) -> float:
        return 1.0 * self.item_bytes * self.elements * self.TENSORS[0 if phase == "forward" else 1]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Activation(_Elementwise):
    """The function between the products of a feed-forward, [tokens, width]."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("tokens", "width")

    tokens: int
    width: int

    @property
    def elements(self) -> int:
        return self.tokens * self.width


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class SwiGLU(_Activation):
    """silu(gate) · up for two tensors [tokens, width] (Shazeer, arXiv 2002.05202)."""

    NAME: ClassVar[str] = "swiglu"
    TENSORS: ClassVar[tuple[int, int]] = (3, 5)
    BANDWIDTH: ClassVar[BandwidthShare] = BandwidthShare(forward=0.78, backward=0.75, width=ONE_STACK)
    """The share of GELU, by tensors moved; two kernels where not fused."""


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class Gelu(_Activation):
    """x·Φ(x) over [tokens, width]."""

    NAME: ClassVar[str] = "gelu"
    TENSORS: ClassVar[tuple[int, int]] = (2, 3)
    BANDWIDTH: ClassVar[BandwidthShare] = BandwidthShare(
        forward=0.78, backward=0.88, width=MEASURED, by_architecture={"ampere": (0.86, 0.96)}
    )
    """A100 722 and 539 GB/s, GH200 1250 and 958; geometric means, and the A100's own on its architecture."""


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class ResidualAdd(_Elementwise):
    """x + y over [tokens, hidden]. Its backward passes the gradient on and takes no time."""

    NAME: ClassVar[str] = "residual_add"
    COLUMNS: ClassVar[tuple[str, ...]] = ("tokens", "hidden")
    PHASES: ClassVar[tuple[Phase, ...]] = ("forward",)
    TENSORS: ClassVar[tuple[int, int]] = (3, 0)
    BANDWIDTH: ClassVar[BandwidthShare] = BandwidthShare(width=MEASURED)
    """566 GB/s on the A100, 1180 on the GH200: the stream itself."""

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
    BANDWIDTH: ClassVar[BandwidthShare] = BandwidthShare(forward=0.3, backward=0.25, width=BY_ANALOGY, kernels=3)
    """A value between a fused kernel (GELU) and the unfused one of the samples (A100 114 and 45 GB/s: about ten passes)."""

    batch: int
    seq_len: int
    heads: int
    head_dim: int

    @property
    def elements(self) -> int:
        return self.batch * self.seq_len * self.heads * self.head_dim
