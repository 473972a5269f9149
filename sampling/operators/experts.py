"""A mixture's experts on one rank: grouped matrix products, and the MLP that they make up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from sampling.arithmetic.expert_rows import experts_with_rows
from sampling.arithmetic.operator import WITH_WEIGHTS, Composite, Operator, counted_in, physics_features, wave_features
from sampling.call import Counted, Phase, register
from sampling.hardware.cluster import Cluster
from sampling.operators.gemm import INT8, WIDENED_BYTES, bytes_of_weight
from sampling.operators.memory_bound import Gelu, SwiGLU

PER_EXPERT, IN_GRAPH = "per_expert", "per_expert_in_graph"
"""Kernels of a framework: a product per expert on several streams (Transformer Engine's GroupedLinear), and the same in a graph of the
whole step."""
UNTUNED = "untuned"
"""The fused kernel of a serving engine that has no tiles tuned for the shape."""
UNTUNED_WIDTH = 8192
"""Inner width on one GPU from which on experts have none: on H100 vLLM 0.14 takes 1.25 to 1.7 times as long for 8192 to 16384 as the
formula of narrower ones says, sliced or whole, and within 15 % for 768 to 7168 (AIConfigurator)."""


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class GroupedGemm(Operator):
    """`groups` products, one per expert: its rows of x [rows, k] · W[expert] [k, n].

    `distribution` divides the rows among the experts: `balanced`, or `power_law_A` where the r-th expert's share is
    proportional to r^-A.
    """

    NAME: ClassVar[str] = "grouped_gemm"
    POWER_LIMITED: ClassVar[bool] = True
    KIND: ClassVar[str] = "gemm"
    PHASES: ClassVar[tuple[Phase, ...]] = WITH_WEIGHTS

    groups: int
    rows: int
    n: int
    k: int
    distribution: str
    kernel: str = ""
    """Library or kernel family that computes it, if a measurement names one."""

    @property
    def compute_dtype(self) -> str:
        return "int8" if self.kernel == INT8 else self.dtype

    def flops(self, phase: Phase) -> float:
        return 2.0 * self.rows * self.n * self.k * (2 if phase == "backward" else 1)

    def bytes_moved(self, phase: Phase) -> float:
        return self._bytes(phase, experts=min(self.groups, self.rows))

    def least_bytes(self, phase: Phase) -> float:
        return self._bytes(phase, experts=experts_with_rows(self.groups, self.rows, self.distribution))

    def _bytes(self, phase: Phase, *, experts: float) -> float:
        if self.kernel in WIDENED_BYTES or self.kernel == INT8:
            weight = bytes_of_weight(self.kernel, self.operand_bytes)
            return self.operand_bytes * self.rows * (self.k + self.n) + weight * experts * self.n * self.k
        one_product = self.operand_bytes * (self.rows * (self.k + self.n) + experts * self.n * self.k)
        return one_product * (2 if phase == "backward" else 1)

    def features(self, phase: Phase, cluster: Cluster) -> dict[str, float]:
        busy = min(self.groups, self.rows)
        rows_of_each = -(-self.rows // busy)
        return {
            **physics_features(self, phase, cluster),
            **wave_features(rows_of_each, self.n, busy, cluster.gpu.multiprocessors),
            "log2_rows_of_each": math.log2(rows_of_each),
        }


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class ExpertMLP(Composite):
    """The experts of one rank: grouped product up (and gate), activation, grouped product down.

    `tokens` is the number on all `ep` ranks together, each sent to `topk` of the `experts`; a rank has experts/ep experts,
    each inter/tp wide. Routing, permutation and the exchange of tokens are calls of their own.
    """

    NAME: ClassVar[str] = "expert_mlp"
    POWER_LIMITED: ClassVar[bool] = True
    PHASES: ClassVar[tuple[Phase, ...]] = WITH_WEIGHTS

    tokens: int
    hidden: int
    inter: int
    topk: int
    experts: int
    ep: int
    tp: int
    gated: bool
    distribution: str
    kernel: str = ""
    """Library or kernel family that computes it, if a measurement names one."""

    @property
    def rows(self) -> int:
        """Rows of this rank: an even share of tokens · topk."""
        return max(1, self.tokens * self.topk // self.ep)

    @property
    def groups(self) -> int:
        """Experts of this rank."""
        return max(1, self.experts // self.ep)

    @property
    def width(self) -> int:
        """Inner width of an expert on this rank."""
        return max(1, self.inter // self.tp)

    def parts(self, phase: Phase) -> Sequence[Counted]:
        activation = SwiGLU if self.gated else Gelu

        def grouped(n: int, k: int) -> GroupedGemm:
            return GroupedGemm(
                dtype=self.dtype, groups=self.groups, rows=self.rows, n=n, k=k, distribution=self.distribution
            )

        calls = (
            grouped(self.width * (2 if self.gated else 1), self.hidden),
            activation(dtype=self.dtype, tokens=self.rows, width=self.width),
            grouped(self.hidden, self.width),
        )
        return counted_in(phase, [(call, 1) for call in calls])

    def features(self, phase: Phase, cluster: Cluster) -> dict[str, float]:
        busy = min(self.groups, self.rows)
        rows_of_each = -(-self.rows // busy)
        waves = wave_features(rows_of_each, self.width, busy, cluster.gpu.multiprocessors)
        return {
            **physics_features(self, phase, cluster),
            **waves,
            "log2_experts_here": math.log2(self.groups),
            "log2_experts_with_rows": math.log2(busy),
            "log2_rows_of_each": math.log2(rows_of_each),
            "log2_width": math.log2(self.width),
        }
