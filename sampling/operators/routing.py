"""A mixture's router, and the permutation of tokens into rows sorted by expert and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sampling.arithmetic.operator import BY_ANALOGY, FORWARD_BACKWARD, WITH_WEIGHTS, BandwidthShare, Operator
from sampling.call import Phase, register
from sampling.hardware.cluster import Cluster

INDEX_BYTES = 8
FP32_BYTES = 4


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class Router(Operator):
    """softmax(x·Wᵀ) of x [tokens, hidden] and W [experts, hidden], and the `topk` greatest of each token.

    Product and softmax are in fp32, as in training stacks, for stability (Fedus et al., Switch
    Transformers, arXiv 2101.03961, section 2.4).
    """

    NAME: ClassVar[str] = "router"
    PHASES: ClassVar[tuple[Phase, ...]] = WITH_WEIGHTS
    BANDWIDTH: ClassVar[BandwidthShare] = BandwidthShare(forward=0.5, backward=0.5, width=BY_ANALOGY, kernels=6)
    """An analogy: cast, product, softmax, top-k."""

    tokens: int
    hidden: int
    experts: int
    topk: int
    product: str = "fp32"
    """Dtype of the product: fp32 on CUDA cores, or tf32 on tensor cores."""

    @property
    def compute_dtype(self) -> str:
        return self.product

    def flops(self, phase: Phase) -> float:
        return 2.0 * self.tokens * self.hidden * self.experts * (2 if phase == "backward" else 1)

    def bytes_moved(self, phase: Phase) -> float:
        x, weight = self.item_bytes * self.tokens * self.hidden, FP32_BYTES * self.experts * self.hidden
        chosen = (FP32_BYTES + INDEX_BYTES) * self.tokens * self.topk
        if phase == "forward":
            return float(x + weight + chosen)
        scores = FP32_BYTES * self.tokens * self.experts
        read_or_written = {"backward": 2 * (x + weight), "backward_input": x + weight, "backward_weight": x + weight}
        return float(read_or_written[phase] + scores + chosen)

    def terms(self, phase: Phase, cluster: Cluster) -> dict[str, float]:
        gpu = cluster.gpu
        return {
            "elementwise_memory": self.bytes_moved(phase) / gpu.bytes_per_us(),
            "gemm_compute": self.flops(phase) / gpu.peak_flops_per_us(self.compute_dtype),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class _Permutation(Operator):
    PHASES: ClassVar[tuple[Phase, ...]] = FORWARD_BACKWARD

    tokens: int
    hidden: int
    topk: int
    experts: int
    fused: bool = False
    """Whether one kernel does all of it, without sorting or atomic sums."""

    @property
    def elements(self) -> int:
        return self.tokens * self.topk * self.hidden

    @property
    def indices_bytes(self) -> int:
        return INDEX_BYTES * self.tokens * self.topk


@register
class Permute(_Permutation):
    """x [tokens, hidden] → [tokens · topk, hidden]: a row per token and chosen expert, sorted by expert."""

    __slots__ = ()

    NAME: ClassVar[str] = "permute"
    BANDWIDTH: ClassVar[BandwidthShare] = BandwidthShare(forward=0.7, backward=0.4, width=BY_ANALOGY, kernels=8)
    """An analogy: a sort, then a gather; atomic sums in backward."""

    def bytes_moved(self, phase: Phase) -> float:
        return float(self.item_bytes * (self.tokens * self.hidden + self.elements) + self.indices_bytes)


@register
class Unpermute(_Permutation):
    """The experts' rows [tokens · topk, hidden] times their weights, summed by token: [tokens, hidden]."""

    __slots__ = ()

    NAME: ClassVar[str] = "unpermute"
    BANDWIDTH: ClassVar[BandwidthShare] = BandwidthShare(forward=0.35, backward=0.4, width=BY_ANALOGY, kernels=4)
    """An analogy: a multiplication by weights, then atomic sums."""

    def bytes_moved(self, phase: Phase) -> float:
        # backward reads the rows for the gradient of their weights, and writes the gradient of the rows
        passes = 1 if phase == "forward" else 2
        weights = FP32_BYTES * self.tokens * self.topk * passes
        rows = self.item_bytes * (self.tokens * self.hidden + passes * self.elements)
        return float(rows + weights + self.indices_bytes)
