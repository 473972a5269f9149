"""Adapters on one rank: the matrices A and B of each product that has them, and what training them takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from predict.model.spec import LayerKind
from predict.rank.module import Module, Works
from predict.rank.share import RankShare, Weights
from predict.run.training_run import TrainingRun
from sampling.arithmetic.operator import Operator
from sampling.cells.matrices import Matrix
from sampling.operators.experts import GroupedGemm
from sampling.operators.gemm import Gemm
from sampling.operators.memory_bound import Stream

JOINING_PASSES = 3
"""Passes over a product's output in which its update joins it: both are read, and one is written; as many for their gradients."""
DORA_PASSES = 3
"""Passes over a weight in which DoRA takes the norms of W + B·A: W is read, and the sum written and read (peft, lora/dora.py,
`get_weight_norm`)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Adapter:
    """A [rank, inputs] and B [outputs, rank] of a matrix on one rank, or of each of `experts` like it."""

    outputs: int
    inputs: int
    rank: int
    experts: int = 0

    @property
    def elements(self) -> int:
        return self.rank * (self.outputs + self.inputs) * max(1, self.experts)


def adapters_of(run: TrainingRun, kind: LayerKind) -> tuple[Adapter, ...]:
    """The adapters of a layer. A of a product that is split by its outputs is whole on every rank, as is B of one split by its inputs."""
    model, plan = run.model, run.plan
    mixer, feed_forward = model.mixer(kind), model.feed_forward(kind)
    of_experts = feed_forward.expert_matrices(model)
    experts = model.experts.count // plan.ep if of_experts and model.experts else 0
    return (
        *_of_matrices(run, (*mixer.matrices(model), *feed_forward.matrices(model)), plan.tp, experts=0),
        *_of_matrices(run, of_experts, plan.etp, experts=experts),
    )


def _of_matrices(run: TrainingRun, matrices: tuple[Matrix, ...], ranks: int, *, experts: int) -> Iterator[Adapter]:
    wanted = run.adapters.products
    own = [matrix.on_rank(ranks) for matrix in matrices if matrix.product in wanted]
    rank = run.adapters.rank
    if not run.adapters.joint:
        for matrix in own:
            yield Adapter(outputs=matrix.outputs, inputs=matrix.inputs, rank=rank, experts=experts)
        return
    for product in dict.fromkeys(matrix.product for matrix in own):
        fused = [matrix for matrix in own if matrix.product == product]
        outputs = sum(matrix.outputs for matrix in fused)
        yield Adapter(outputs=outputs, inputs=fused[0].inputs, rank=rank, experts=experts)


def trained_in_layer(run: TrainingRun, kind: LayerKind, whole: Weights) -> Weights:
    """The weights of a layer that are trained, of those that it has."""
    if not run.adapters.are_trained:
        return whole
    found = adapters_of(run, kind)
    magnitudes = sum(each.outputs for each in found) if run.adapters.kind == "dora" else 0
    return Weights(
        dense=sum(each.elements for each in found if not each.experts) + magnitudes,
        experts=sum(each.elements for each in found if each.experts),
    )


def trained_at_end(run: TrainingRun, whole: Weights) -> Weights:
    """The weights of embedding or head that are trained."""
    return Weights() if run.adapters.are_trained else whole


def with_adapters(rank: RankShare, kind: LayerKind, modules: tuple[Module, ...]) -> tuple[Module, ...]:
    """A layer's modules, frozen, and its adapters; the modules themselves where all weights are trained."""
    if not rank.run.adapters.are_trained:
        return modules
    works = tuple(work for each in adapters_of(rank.run, kind) for work in _works(rank, each))
    return (*frozen(modules), Module(name="adapters", works=works))


def frozen(modules: tuple[Module, ...], *, needs_input: bool = True) -> tuple[Module, ...]:
    """Modules whose weights have no gradients; nothing before them is trained either, unless `needs_input`."""
    return tuple(module.frozen(needs_input=needs_input) for module in modules)


def _works(rank: RankShare, adapter: Adapter) -> Works:
    if adapter.experts:
        rows = max(adapter.experts, rank.tokens // rank.plan.tp * _topk(rank) * rank.plan.etp)
        up, down = (
            GroupedGemm(dtype=rank.dtype, groups=adapter.experts, rows=rows, n=n, k=k, distribution="balanced")
            for n, k in ((adapter.rank, adapter.inputs), (adapter.outputs, adapter.rank))
        )
        products: tuple[Operator, ...] = (up, down)
    else:
        rows = rank.tokens
        products = (
            Gemm(dtype=rank.dtype, m=rows, n=adapter.rank, k=adapter.inputs),
            Gemm(dtype=rank.dtype, m=rows, n=adapter.outputs, k=adapter.rank),
        )
    joining = Stream(dtype=rank.dtype, size_bytes=JOINING_PASSES * rank.item_bytes * rows * adapter.outputs)
    works = (*((product, 1.0) for product in products), (joining, 1.0))
    if rank.run.adapters.kind != "dora":
        return works
    weight = max(1, adapter.experts) * adapter.outputs * adapter.inputs
    update = Gemm(dtype=rank.dtype, m=adapter.outputs, n=adapter.inputs, k=adapter.rank)
    norms = Stream(dtype=rank.dtype, size_bytes=DORA_PASSES * rank.item_bytes * weight)
    return (*works, (update, float(max(1, adapter.experts))), (norms, 1.0))


def _topk(rank: RankShare) -> int:
    return rank.model.experts.topk if rank.model.experts else 1
