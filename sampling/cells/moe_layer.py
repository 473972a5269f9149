"""A whole transformer layer whose MLP is a mixture of experts, on one rank that holds all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from sampling.arithmetic.expert_rows import rows_of_groups
from sampling.arithmetic.operator import COPIES, Composite, Operator, composite_features, counted_in
from sampling.call import Counted, Phase, register
from sampling.cells.layer import CELL_PHASES, DenseLayer
from sampling.hardware.cluster import Cluster
from sampling.operators.experts import ExpertMLP
from sampling.operators.memory_bound import ResidualAdd
from sampling.operators.routing import Permute, Router, Unpermute

SHARED = ("dtype", "batch", "seq_len", "hidden", "heads", "kv_heads", "head_dim", "gated", "norm", "rope", "qkv_bias")
"""Fields that the layer has in common with `DenseLayer`."""


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class MoELayer(Composite):
    """Attention as in `DenseLayer`, then router, permutation, `experts` MLPs `inter` wide, and the inverse permutation.

    `distribution` is the distribution of tokens over experts (see `rows_of_groups`). A shared expert `shared_inter` wide also gets every
    token; 0 for none.
    """

    NAME: ClassVar[str] = "moe_layer"
    PHASES: ClassVar[tuple[Phase, ...]] = CELL_PHASES

    batch: int
    seq_len: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    inter: int
    experts: int
    topk: int
    distribution: str
    gated: bool
    norm: str
    rope: bool
    qkv_bias: bool
    shared_inter: int = 0
    compiled: bool = False
    """Whether the layer runs under torch.compile, which fuses the operators between its products."""

    @classmethod
    def like(
        cls, layer: DenseLayer, *, inter: int, experts: int, topk: int, distribution: str, shared_inter: int
    ) -> MoELayer:
        """The layer with experts in place of its MLP, on one rank."""
        return cls(
            **_shared(layer),
            inter=inter,
            experts=experts,
            topk=topk,
            distribution=distribution,
            shared_inter=shared_inter,
        )

    @property
    def tokens(self) -> int:
        return self.batch * self.seq_len

    @property
    def dense(self) -> DenseLayer:
        """The layer's attention, with the shared expert as its MLP."""
        return DenseLayer(**_shared(self), ffn=self.shared_inter, bias=False, tp=1, sp=False)

    def mixture_calls(self) -> list[tuple[Operator, int]]:
        """The operators from the router to the sum of the experts' outputs, with their counts."""
        choices = {"dtype": self.dtype, "tokens": self.tokens, "hidden": self.hidden, "topk": self.topk}
        experts = ExpertMLP(
            dtype=self.dtype,
            tokens=self.tokens,
            hidden=self.hidden,
            inter=self.inter,
            topk=self.topk,
            experts=self.experts,
            ep=1,
            tp=1,
            gated=self.gated,
            distribution=self.distribution,
        )
        parts = (Router, Permute, Unpermute)
        router, gather, scatter = (part(**choices, experts=self.experts) for part in parts)  # type: ignore[arg-type]
        return [(router, 1), (gather, 1), (experts, 1), (scatter, 1)]

    def parts(self, phase: Phase) -> Sequence[Counted]:
        dense = self.dense
        calls = dense.frame_calls() + dense.attention_calls() + dense.rotation_calls() + self.mixture_calls()
        if self.shared_inter:
            joined = ResidualAdd(dtype=self.dtype, tokens=self.tokens, hidden=self.hidden)
            calls += [*dense.mlp_calls(), (joined, 1)]
        return counted_in(phase, calls)

    def weight_shapes(self) -> list[tuple[int, ...]]:
        """Shapes of the layer's weights. The router's is kept in fp32, the experts' are [experts, out, in]."""
        dense = [shape for shape in self.dense.weight_shapes() if math.prod(shape)]
        up = self.inter * (2 if self.gated else 1)
        return [
            *dense,
            (self.experts, self.hidden),
            (self.experts, up, self.hidden),
            (self.experts, self.hidden, self.inter),
        ]

    def resident_bytes(self) -> float:
        weights = self.item_bytes * sum(math.prod(shape) for shape in self.weight_shapes())
        return COPIES * (self.bytes_moved("forward") + weights)

    def features(self, phase: Phase, cluster: Cluster) -> dict[str, float]:
        rows = rows_of_groups(self.tokens * self.topk, self.experts, self.distribution)
        return {
            **composite_features(self, phase, cluster),
            "log2_experts": math.log2(self.experts),
            "log2_topk": math.log2(self.topk),
            "log2_inter": math.log2(self.inter),
            "log2_rows_of_each": math.log2(sum(rows) / len(rows)),
            "log2_largest_over_mean": math.log2(max(rows) * len(rows) / sum(rows)),
        }


def _shared(layer: DenseLayer | MoELayer) -> dict[str, Any]:
    return {name: getattr(layer, name) for name in SHARED}
