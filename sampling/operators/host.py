"""Work beside a GPU: copies between it and its host's memory or disks, and AdamW on the host's cores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sampling.arithmetic.operator import BY_ANALOGY, BandwidthShare, Operator
from sampling.call import Phase, register
from sampling.hardware.cluster import DTYPE_BYTES

FP32, HALF = DTYPE_BYTES["fp32"], DTYPE_BYTES["bf16"]


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class HostCopy(Operator):
    """`size_bytes` from a GPU to the host's memory, from pinned pages, or back; with `disk` to the host's disks or back."""

    NAME: ClassVar[str] = "host_copy"
    HEADING: ClassVar[str] = "offload"
    PHASES: ClassVar[tuple[Phase, ...]] = ("forward",)
    COLUMNS: ClassVar[tuple[str, ...]] = ("size_bytes",)
    BANDWIDTH: ClassVar[BandwidthShare] = BandwidthShare(width=BY_ANALOGY)

    size_bytes: int
    to_host: bool
    disk: bool = False

    def bytes_moved(self, phase: Phase) -> float:
        return 1.0 * self.size_bytes


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class HostAdamW(Operator):
    """AdamW of `parameters` whose fp32 weights and moments lie in the host's memory, on its cores (Ren et al., ZeRO-Offload,
    arXiv 2101.06840, section 5.1): weight, gradient and both moments are read, all but the gradient written, and a 16-bit weight too."""

    NAME: ClassVar[str] = "host_adamw"
    HEADING: ClassVar[str] = "offload"
    PHASES: ClassVar[tuple[Phase, ...]] = ("step",)
    COLUMNS: ClassVar[tuple[str, ...]] = ("parameters",)
    BANDWIDTH: ClassVar[BandwidthShare] = BandwidthShare(width=BY_ANALOGY)

    parameters: int

    def bytes_moved(self, phase: Phase) -> float:
        return 1.0 * (7 * FP32 + HALF) * self.parameters
