"""How tokens find their experts: the router, and the permutation of tokens into rows sorted by expert and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sampling.arithmetic.expert_rows import BALANCED, rows_of_groups
from sampling.arithmetic.operator import FORWARD_BACKWARD, WITH_WEIGHTS, Operator
from sampling.call import Phase
from sampling.catalogue import register
from sampling.hardware.cluster import Cluster

if TYPE_CHECKING:
    import torch

    from sampling.torch_work.workload import AutogradWorkload

INDEX_BYTES = 8
FP32_BYTES = 4


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class Router(Operator):
    """softmax(x·Wᵀ) of x [tokens, hidden] and W [experts, hidden], and the `topk` greatest of each token.

    Product and softmax are in fp32, as training stacks compute them for the sake of stability (Fedus et al., Switch
    Transformers, arXiv 2101.03961, section 2.4).
    """

    NAME: ClassVar[str] = "router"
    PHASES: ClassVar[tuple[Phase, ...]] = WITH_WEIGHTS

    tokens: int
    hidden: int
    experts: int
    topk: int

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
            "gemm_compute": self.flops(phase) / gpu.peak_flops_per_us("fp32"),
        }

    def build(self, device: torch.device) -> AutogradWorkload:
        from sampling.torch_work.workload import COPIES, AutogradWorkload, Copy, leaf

        def copy() -> Copy:
            x = leaf(device, self.dtype, self.tokens, self.hidden)
            weight = leaf(device, "fp32", self.experts, self.hidden)
            return Copy(forward=lambda: route(x, weight, self.topk)[0], inputs=[x], weights=[weight])

        return AutogradWorkload([copy() for _ in range(COPIES)])


@dataclass(frozen=True, kw_only=True, slots=True)
class _Permutation(Operator):
    PHASES: ClassVar[tuple[Phase, ...]] = FORWARD_BACKWARD

    tokens: int
    hidden: int
    topk: int
    experts: int

    @property
    def elements(self) -> int:
        return self.tokens * self.topk * self.hidden

    @property
    def indices_bytes(self) -> int:
        return INDEX_BYTES * self.tokens * self.topk

    def flops(self, phase: Phase) -> float:
        return 0.0


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class Permute(_Permutation):
    """x [tokens, hidden] → [tokens · topk, hidden], a row for each choice of a token, sorted by expert."""

    NAME: ClassVar[str] = "permute"

    def bytes_moved(self, phase: Phase) -> float:
        return float(self.item_bytes * (self.tokens * self.hidden + self.elements) + self.indices_bytes)

    def build(self, device: torch.device) -> AutogradWorkload:
        from sampling.torch_work.workload import COPIES, AutogradWorkload, Copy, leaf

        rows = rows_of_groups(self.tokens * self.topk, self.experts, BALANCED)

        def copy() -> Copy:
            x, chosen = leaf(device, self.dtype, self.tokens, self.hidden), assignment(rows, self.topk, device)
            return Copy(forward=lambda: permute(x, chosen)[0], inputs=[x])

        return AutogradWorkload([copy() for _ in range(COPIES)])


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class Unpermute(_Permutation):
    """The experts' rows [tokens · topk, hidden] times their weights, summed by token: [tokens, hidden]."""

    NAME: ClassVar[str] = "unpermute"

    def bytes_moved(self, phase: Phase) -> float:
        # backward reads the rows for the gradient of their weights, and writes the rows' own
        passes = 1 if phase == "forward" else 2
        weights = FP32_BYTES * self.tokens * self.topk * passes
        rows = self.item_bytes * (self.tokens * self.hidden + passes * self.elements)
        return float(rows + weights + self.indices_bytes)

    def build(self, device: torch.device) -> AutogradWorkload:
        from sampling.torch_work.workload import COPIES, AutogradWorkload, Copy, leaf

        rows_of_each = rows_of_groups(self.tokens * self.topk, self.experts, BALANCED)

        def copy() -> Copy:
            rows = leaf(device, self.dtype, self.tokens * self.topk, self.hidden)
            weights = leaf(device, "fp32", self.tokens, self.topk)
            order = order_of(assignment(rows_of_each, self.topk, device))
            return Copy(forward=lambda: unpermute(rows, weights, order), inputs=[rows, weights])

        return AutogradWorkload([copy() for _ in range(COPIES)])


def assignment(rows: Sequence[int], topk: int, device: torch.device) -> torch.Tensor:
    """Experts [tokens, topk] drawn at random so that each is chosen as often as it has rows."""
    import torch

    experts = torch.arange(len(rows), device=device).repeat_interleave(torch.tensor(rows, device=device))
    return experts[torch.randperm(len(experts), device=device)].view(-1, topk)


def route(x: torch.Tensor, weight: torch.Tensor, topk: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights and experts, both [tokens, topk], of x [tokens, hidden]."""
    import torch

    scores = torch.nn.functional.linear(x.float(), weight).softmax(dim=-1)
    weights, chosen = scores.topk(topk, dim=-1)
    return weights, chosen


def order_of(chosen: torch.Tensor) -> torch.Tensor:
    """Which choice [tokens, topk], counted through, each row holds once they are sorted by expert."""
    return chosen.flatten().argsort(stable=True)


def permute(x: torch.Tensor, chosen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows sorted by expert, and their order."""
    order = order_of(chosen)
    return x.index_select(0, order // chosen.shape[1]), order


def unpermute(rows: torch.Tensor, weights: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """The inverse: every row times its weight, added up by token."""
    tokens, topk = weights.shape
    weighted = rows * weights.flatten()[order].to(rows.dtype).unsqueeze(-1)
    return weighted.new_zeros(tokens, rows.shape[1]).index_add(0, order // topk, weighted)
