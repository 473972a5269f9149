"""Matrix products of a linear layer, y[m, n] = x[m, k] · W[n, k]ᵀ, and of a batch of matrices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from sampling.arithmetic.operator import (
    FORWARD_BACKWARD,
    WITH_WEIGHTS,
    Operator,
    alignment_features,
    physics_features,
    wave_features,
)
from sampling.call import Phase, register
from sampling.hardware.cluster import DTYPE_BYTES, ELEMENT_BYTES, Cluster

LEAST_OUTPUT_BYTES = 2
READS: Mapping[str, int] = {"fp8": 1, "nvfp4": 2, "mxfp4": 1}
"""Times that a 16-bit matrix is read on its way to a dtype whose products need scales: NVFP4's rest on the largest magnitude of all, which
is found first (NVIDIA, Pretraining Large Language Models with NVFP4, arXiv 2509.25149, section 4)."""


SCALE_BITS = 16
WIDENED_BYTES: Mapping[str, float] = {
    "w4a16": (4 + (SCALE_BITS + 4) / 128) / 8,
    "w8a16": (8 + SCALE_BITS / 128) / 8,
    "fp8_a16": 1.0,
    "nvfp4_a16": ELEMENT_BYTES["nvfp4"],
    "mxfp4_a16": ELEMENT_BYTES["mxfp4"],
}
"""Kernels that multiply 16-bit inputs by weights of fewer bits, which they widen as they read them (Marlin, arXiv 2408.11743) → bytes of a
weight. Integers have a scale for each 128 of them, and those of four bits a zero point (AWQ, arXiv 2306.00978; GPTQ's files)."""
INT8 = "w8a8"
"""A kernel that multiplies int8 by int8, its inputs brought to eight bits by a kernel before it."""
FP8_BLOCK = "fp8_block"
"""A kernel of fp8 with a scale for each 128 x 128 weights and for each 128 inputs (DeepSeek-V3, arXiv 2412.19437, section 3.3.2)."""


def bytes_of_weight(kernel: str, operand_bytes: float) -> float:
    """Bytes of a weight as a kernel reads it; `operand_bytes` are those of its dtype."""
    return 1.0 if kernel == INT8 else WIDENED_BYTES.get(kernel, operand_bytes)


def is_scaled(dtype: str) -> bool:
    """Whether products of this dtype take operands with scales, which kernels before them make."""
    return dtype in READS


def scaling_bytes(dtype: str) -> float:
    """Bytes that move for each element of a 16-bit matrix on its way to such a dtype, by rows and, for the gradient of the weight, by
    columns (Transformer Engine, common/cast)."""
    return READS[dtype] * DTYPE_BYTES["bf16"] + 2 * ELEMENT_BYTES[dtype]


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class Gemm(Operator):
    """Any linear layer: m tokens, n output features, k input features.

    Backward-input is [m, n]·[n, k], backward-weight [n, m]·[m, k]; each the forward's FLOPs 2·m·n·k.
    """

    NAME: ClassVar[str] = "gemm"
    POWER_LIMITED: ClassVar[bool] = True
    KIND: ClassVar[str] = "gemm"
    PHASES: ClassVar[tuple[Phase, ...]] = WITH_WEIGHTS
    COLUMNS: ClassVar[tuple[str, ...]] = ("m", "n", "k")

    m: int
    n: int
    k: int
    kernel: str = ""
    """Library or kernel family that computes it, if a measurement names one."""

    @property
    def compute_dtype(self) -> str:
        return "int8" if self.kernel == INT8 else self.dtype

    def flops(self, phase: Phase) -> float:
        return 2.0 * self.m * self.n * self.k * (2 if phase == "backward" else 1)

    def bytes_moved(self, phase: Phase) -> float:
        sizes = {"y": self.m * self.n, "x": self.m * self.k, "weight": self.n * self.k}
        every = sum(sizes.values())
        # a product of fp8 matrices is written in 16 bits
        wider = max(0, LEAST_OUTPUT_BYTES - self.operand_bytes)
        made = {"forward": "y", "backward_input": "x", "backward_weight": "weight"}
        written = sizes[made[phase]] if phase in made else sizes["x"] + sizes["weight"]
        if self.kernel in WIDENED_BYTES or self.kernel == INT8:
            weight = bytes_of_weight(self.kernel, self.operand_bytes)
            return weight * sizes["weight"] + self.operand_bytes * (sizes["x"] + sizes["y"])
        return 1.0 * (self.operand_bytes * every * (2 if phase == "backward" else 1) + wider * written)

    def features(self, phase: Phase, cluster: Cluster) -> dict[str, float]:
        return {
            **physics_features(self, phase, cluster),
            **wave_features(self.m, self.n, 1, cluster.gpu.multiprocessors),
            **alignment_features(m=self.m, n=self.n, k=self.k),
        }


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class BatchedGemm(Operator):
    """`batch` products [m, k] · [k, n], such as the two of unfused attention. With `adds` they are scaled and added to a
    third tensor (torch.baddbmm). Backward is two such products.
    """

    NAME: ClassVar[str] = "batched_gemm"
    POWER_LIMITED: ClassVar[bool] = True
    KIND: ClassVar[str] = "gemm"
    PHASES: ClassVar[tuple[Phase, ...]] = FORWARD_BACKWARD
    COLUMNS: ClassVar[tuple[str, ...]] = ("batch", "m", "n", "k")

    batch: int
    m: int
    n: int
    k: int
    adds: bool

    def flops(self, phase: Phase) -> float:
        return 2.0 * self.batch * self.m * self.n * self.k * (2 if phase == "backward" else 1)

    def bytes_moved(self, phase: Phase) -> float:
        one_product = self.item_bytes * self.batch * (self.m * self.k + self.n * self.k + self.m * self.n)
        return one_product * (2.0 if phase == "backward" else 1.0)

    def features(self, phase: Phase, cluster: Cluster) -> dict[str, float]:
        return {
            **physics_features(self, phase, cluster),
            **wave_features(self.m, self.n, self.batch, cluster.gpu.multiprocessors),
            **alignment_features(m=self.m, n=self.n, k=self.k),
        }
