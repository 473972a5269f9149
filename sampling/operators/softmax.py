"""Masking and softmax over the scores of unfused attention, between its two products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sampling.arithmetic.operator import FORWARD_BACKWARD, MEASURED, ONE_STACK, BandwidthShare, Operator
from sampling.call import Phase, register


@dataclass(frozen=True, kw_only=True, slots=True)
class _OverScores(Operator):
    """Scores [matrices, seq, seq] → the same shape; memory-bound. `matrices` is batch · heads."""

    PHASES: ClassVar[tuple[Phase, ...]] = FORWARD_BACKWARD
    COLUMNS: ClassVar[tuple[str, ...]] = ("matrices", "seq_len")
    TENSORS: ClassVar[tuple[float, float]]
    """Tensors of the scores' size that forward and backward must read or write; masked scores need not be read."""

    matrices: int
    seq_len: int

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.matrices, self.seq_len, self.seq_len

    @property
    def elements(self) -> int:
        return self.matrices * self.seq_len**2

    def bytes_moved(self, phase: Phase) -> float:
        return self.item_bytes * self.elements * self.TENSORS[0 if phase == "forward" else 1]


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class Softmax(_OverScores):
    """softmax over the last dimension."""

    NAME: ClassVar[str] = "softmax"
    TENSORS: ClassVar[tuple[float, float]] = (2, 3)
    BANDWIDTH: ClassVar[BandwidthShare] = BandwidthShare(
        forward=0.45, backward=0.46, width=ONE_STACK, by_architecture={"ampere": (0.52, 0.49)}
    )
    """A100 450 and 278 GB/s, GH200 700 and 516; geometric means, and the A100's own on its architecture."""


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class CausalSoftmax(_OverScores):
    """Scale, causal mask and softmax in one fused kernel, here that of torch.compile."""

    NAME: ClassVar[str] = "causal_softmax"
    TENSORS: ClassVar[tuple[float, float]] = (1.5, 2)
    BANDWIDTH: ClassVar[BandwidthShare] = BandwidthShare(
        forward=0.69, backward=0.59, width=MEASURED, by_architecture={"ampere": (0.74, 0.67)}
    )
    """A100 838 and 569 GB/s, GH200 1490 and 904; geometric means, and the A100's own on its architecture."""


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class MaskFill(_OverScores):
    """The scores above the diagonal replaced by a constant."""

    NAME: ClassVar[str] = "mask_fill"
    TENSORS: ClassVar[tuple[float, float]] = (1.5, 1.5)
    BANDWIDTH: ClassVar[BandwidthShare] = BandwidthShare(forward=0.4, backward=0.088, width=ONE_STACK)
    """A100 413 and 106 GB/s, GH200 727–1530 and 194."""
