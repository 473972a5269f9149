"""Work over all parameters at the end of a step: AdamW, the scaling of gradients after a pipeline, and copies of weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from sampling.arithmetic.operator import MEASURED, BandwidthShare, Operator
from sampling.call import Counted, Phase, register

STEP: tuple[Phase, ...] = ("step",)
TENSORS_PER_LAUNCH = 36
"""Tensors that one launch of a fused optimizer takes with four lists of them (torch, MultiTensorApply.cuh)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _OverParameters(Operator):
    """Passes over `parameters` elements in `tensors` tensors, one kernel for each tensor."""

    PHASES: ClassVar[tuple[Phase, ...]] = STEP
    PASSES: ClassVar[float] = 2.0

    parameters: int
    tensors: int

    @property
    def kernels(self) -> int:
        return self.tensors

    def bytes_moved(self, phase: Phase) -> float:
        return self.PASSES * self.item_bytes * self.parameters


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class AdamW(_OverParameters):
    """Fused AdamW over `tensors` tensors of `parameters` elements in all (Loshchilov and Hutter, arXiv 1711.05101).

    It reads weight, gradient and both moments and writes all but the gradient: 7 passes. With tp > 1 the tensors are one
    rank's shards of DTensors, and the host spends time on dispatching each.
    """

    NAME: ClassVar[str] = "adamw"
    HEADING: ClassVar[str] = "optimizer"
    PASSES: ClassVar[float] = 7.0
    BANDWIDTH: ClassVar[BandwidthShare] = BandwidthShare(forward=0.83, backward=0.83, width=MEASURED)
    """20 ps per parameter of 28 bytes in published A100 runs."""

    tp: int

    @property
    def group_size(self) -> int:
        return self.tp

    @property
    def kernels(self) -> int:
        return -(-self.tensors // TENSORS_PER_LAUNCH)

    def parts(self, phase: Phase) -> Sequence[Counted]:
        return (Counted(call=replace(self, tp=1), phase=phase),) if self.tp > 1 else ()


@register
class GradientScale(_OverParameters):
    """Division of every gradient by the number of microbatches, at the end of a pipeline's backward."""

    __slots__ = ()

    NAME: ClassVar[str] = "gradient_scale"
    HEADING: ClassVar[str] = "optimizer"
    BANDWIDTH: ClassVar[BandwidthShare] = BandwidthShare(width=MEASURED)
    """The share of a residual addition."""


@register
class ParameterCopy(_OverParameters):
    """New weights copied into another model's of the same shapes, tensor by tensor."""

    __slots__ = ()

    NAME: ClassVar[str] = "parameter_copy"
    BANDWIDTH: ClassVar[BandwidthShare] = BandwidthShare(width=MEASURED)
    """The share of a residual addition."""
