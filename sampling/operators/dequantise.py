"""Weights in few bits brought back to the dtype of the product that reads them next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from sampling.arithmetic.operator import BY_ANALOGY, BandwidthShare, Operator
from sampling.call import Phase, register
from sampling.hardware.cluster import DTYPE_BYTES, ELEMENT_BYTES

FP32 = DTYPE_BYTES["fp32"]
NF4_BLOCK, NF4_SCALES = 64, 256
"""Weights that share a scale, and scales that share one of their own (Dettmers et al., QLoRA, arXiv 2305.14314, section 3)."""
FP8_BLOCK = 128
"""Rows, and columns, that share a scale (DeepSeek-V3, arXiv 2412.19437, section 3.3.2)."""
STORED_BYTES: Mapping[str, float] = {
    "nf4": 0.5 + FP32 / NF4_BLOCK,
    "nf4_double": 0.5 + 1 / NF4_BLOCK + FP32 / (NF4_BLOCK * NF4_SCALES),
    "fp8": 1 + FP32 / FP8_BLOCK**2,
    "mxfp4": ELEMENT_BYTES["mxfp4"],
}
"""How weights are stored → bytes of one with its share of the scales: NormalFloat with fp32 scales, or with 8-bit ones that have fp32
scales in turn (`double`); fp8 with an fp32 scale a block; MXFP4 (OCP Microscaling Formats 1.0)."""


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class Dequantise(Operator):
    """`count` weights, `stored` in few bits, read and written in `dtype`: what a kernel does before each product of a quantised base, and
    again before the product of its input's gradient (bitsandbytes, autograd/_functions.py, MatMul4Bit)."""

    NAME: ClassVar[str] = "dequantise"
    PHASES: ClassVar[tuple[Phase, ...]] = ("forward",)
    COLUMNS: ClassVar[tuple[str, ...]] = ("count",)
    BANDWIDTH: ClassVar[BandwidthShare] = BandwidthShare(forward=0.69, width=BY_ANALOGY)
    """The share of a causal softmax, one kernel that looks something up for each element; not measured."""

    stored: str
    count: int

    @property
    def elements(self) -> int:
        return self.count

    def bytes_moved(self, phase: Phase) -> float:
        return self.count * (STORED_BYTES[self.stored] + self.item_bytes)
