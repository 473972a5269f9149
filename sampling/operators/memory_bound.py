"""Operators bound by memory, whose cost is passes over tensors: activations, norms, softmax, residual addition, copies."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from sampling.arithmetic.operator import (
    BY_ANALOGY,
    FORWARD_BACKWARD,
    MEASURED,
    ONE_STACK,
    WITH_WEIGHTS,
    BandwidthShare,
    Operator,
)
from sampling.call import Phase, register


class _Passes(Operator):
    """Passes over tensors of one shape, which has the sizes of COLUMNS."""

    __slots__ = ()

    PHASES: ClassVar[tuple[Phase, ...]] = FORWARD_BACKWARD
    TENSORS: ClassVar[tuple[float, float]]
    """Tensors of `elements` that forward, or backward-weight, and backward must read or write."""

    @property
    def elements(self) -> int:
        return math.prod(getattr(self, size) for size in self.COLUMNS)

    def bytes_moved(self, phase: Phase) -> float:
        like_forward = phase in ("forward", "backward_weight")
        return 1.0 * self.item_bytes * self.elements * self.TENSORS[0 if like_forward else 1]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Activation(_Passes):
    """The function between the products of a feed-forward, [tokens, width]."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("tokens", "width")
    FUSIBLE: ClassVar[bool] = True

    tokens: int
    width: int


@register
class SwiGLU(_Activation):
    """silu(gate) · up for two tensors [tokens, width] (Shazeer, arXiv 2002.05202)."""

    __slots__ = ()

    NAME: ClassVar[str] = "swiglu"
    TENSORS: ClassVar[tuple[int, int]] = (3, 5)
    BANDWIDTH: ClassVar[BandwidthShare] = BandwidthShare(forward=0.78, backward=0.75, width=ONE_STACK)
    """The share of GELU, by tensors moved; two kernels where not fused."""


@register
class Gelu(_Activation):
    """x·Φ(x) over [tokens, width]."""

    __slots__ = ()

    NAME: ClassVar[str] = "gelu"
    TENSORS: ClassVar[tuple[int, int]] = (2, 3)
    BANDWIDTH: ClassVar[BandwidthShare] = BandwidthShare(
        forward=0.78, backward=0.88, width=MEASURED, by_architecture={"ampere": (0.86, 0.96)}
    )
    """A100 722 and 539 GB/s, GH200 1250 and 958; geometric means, and the A100's own on its architecture."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _OverHidden(_Passes):
    """Passes over hidden states, [tokens, hidden]."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("tokens", "hidden")
    FUSIBLE: ClassVar[bool] = True

    tokens: int
    hidden: int


@register
class ResidualAdd(_OverHidden):
    """x + y over [tokens, hidden]. Its backward passes the gradient on and takes no time."""

    __slots__ = ()

    NAME: ClassVar[str] = "residual_add"
    PHASES: ClassVar[tuple[Phase, ...]] = ("forward",)
    TENSORS: ClassVar[tuple[int, int]] = (3, 0)
    BANDWIDTH: ClassVar[BandwidthShare] = BandwidthShare(width=MEASURED)
    """566 GB/s on the A100, 1180 on the GH200: the stream itself."""


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class RoPE(_Passes):
    """Rotary position embedding of [batch, seq, heads, head_dim] (Su et al., arXiv 2104.09864)."""

    NAME: ClassVar[str] = "rope"
    COLUMNS: ClassVar[tuple[str, ...]] = ("batch", "seq_len", "heads", "head_dim")
    FUSIBLE: ClassVar[bool] = True
    TENSORS: ClassVar[tuple[int, int]] = (2, 2)
    BANDWIDTH: ClassVar[BandwidthShare] = BandwidthShare(forward=0.3, backward=0.25, width=BY_ANALOGY, kernels=3)
    """A value between a fused kernel (GELU) and the unfused one of the samples (A100 114 and 45 GB/s: about ten passes)."""

    batch: int
    seq_len: int
    heads: int
    head_dim: int


class Norm(_OverHidden):
    """x [tokens, hidden] → the same shape; the input's gradient passes over three tensors."""

    __slots__ = ()

    PHASES: ClassVar[tuple[Phase, ...]] = WITH_WEIGHTS
    TENSORS: ClassVar[tuple[float, float]] = (2, 3)


@register
class RMSNorm(Norm):
    """γ·x/√(mean(x²)+ε) (Zhang and Sennrich, arXiv 1910.07467)."""

    __slots__ = ()

    NAME: ClassVar[str] = "rms_norm"
    BANDWIDTH: ClassVar[BandwidthShare] = BandwidthShare(forward=0.66, backward=0.71, width=ONE_STACK)
    """The share of a layer norm with the GH200's kernels: the samples' own RMSNorm is unfused, at 33–300 GB/s."""


@register
class LayerNorm(Norm):
    """γ·(x−μ)/√(σ²+ε)+β (Ba et al., arXiv 1607.06450)."""

    __slots__ = ()

    NAME: ClassVar[str] = "layer_norm"
    BANDWIDTH: ClassVar[BandwidthShare] = BandwidthShare(
        forward=0.66, backward=0.71, width=MEASURED, by_architecture={"ampere": (0.66, 0.31)}
    )
    """A100 563 and 174 GB/s (Apex, 2022), GH200 1169 and 833; both passes of the backward together."""


NORMS: Mapping[str, type[Norm]] = {"rms": RMSNorm, "layer": LayerNorm}


@dataclass(frozen=True, kw_only=True, slots=True)
class _OverScores(_Passes):
    """Scores of unfused attention, [matrices, seq, seq], between its two products; `matrices` is batch · heads. Masked scores need
    not be read."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("matrices", "seq_len")

    matrices: int
    seq_len: int

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.matrices, self.seq_len, self.seq_len

    @property
    def elements(self) -> int:
        return self.matrices * self.seq_len**2


@register
class Softmax(_OverScores):
    """softmax over the last dimension."""

    __slots__ = ()

    NAME: ClassVar[str] = "softmax"
    TENSORS: ClassVar[tuple[float, float]] = (2, 3)
    BANDWIDTH: ClassVar[BandwidthShare] = BandwidthShare(
        forward=0.45, backward=0.46, width=ONE_STACK, by_architecture={"ampere": (0.52, 0.49)}
    )
    """A100 450 and 278 GB/s, GH200 700 and 516; geometric means, and the A100's own on its architecture."""


@register
class CausalSoftmax(_OverScores):
    """Scale, causal mask and softmax in one fused kernel, here torch.compile's."""

    __slots__ = ()

    NAME: ClassVar[str] = "causal_softmax"
    TENSORS: ClassVar[tuple[float, float]] = (1.5, 2)
    BANDWIDTH: ClassVar[BandwidthShare] = BandwidthShare(
        forward=0.69, backward=0.59, width=MEASURED, by_architecture={"ampere": (0.74, 0.67)}
    )
    """A100 838 and 569 GB/s, GH200 1490 and 904; geometric means, and the A100's own on its architecture."""


@register
class MaskFill(_OverScores):
    """The scores above the diagonal replaced by a constant."""

    __slots__ = ()

    NAME: ClassVar[str] = "mask_fill"
    TENSORS: ClassVar[tuple[float, float]] = (1.5, 1.5)
    BANDWIDTH: ClassVar[BandwidthShare] = BandwidthShare(forward=0.4, backward=0.088, width=ONE_STACK)
    """A100 413 and 106 GB/s, GH200 727–1530 and 194."""


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class Dropout(Operator):
    """Dropout of `count` elements. Forward reads and writes each, and writes a mask of one byte, which backward reads."""

    NAME: ClassVar[str] = "dropout"
    PHASES: ClassVar[tuple[Phase, ...]] = FORWARD_BACKWARD
    COLUMNS: ClassVar[tuple[str, ...]] = ("count",)
    BANDWIDTH: ClassVar[BandwidthShare] = BandwidthShare(forward=0.89, backward=0.89, width=ONE_STACK)
    """Attention dropout at 1.5 TB/s in published A100 runs."""

    count: int

    @property
    def elements(self) -> int:
        return self.count

    def bytes_moved(self, phase: Phase) -> float:
        return 1.0 * self.count * (2 * self.item_bytes + 1)


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class Stream(Operator):
    """One pass over `size_bytes`, half of them read and half written, such as adding a microbatch's gradients to earlier ones,
    or copying weights to the training precision. It is timed as c · x, whose backward is another such pass."""

    NAME: ClassVar[str] = "stream"
    PHASES: ClassVar[tuple[Phase, ...]] = FORWARD_BACKWARD
    COLUMNS: ClassVar[tuple[str, ...]] = ("size_bytes",)
    BANDWIDTH: ClassVar[BandwidthShare] = BandwidthShare(forward=0.89, backward=0.89, width=MEASURED)
    """Adding up gradients at 1.5 TB/s in published A100 runs."""

    size_bytes: int

    def bytes_moved(self, phase: Phase) -> float:
        return 1.0 * self.size_bytes
