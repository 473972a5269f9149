"""The units of each pipeline rank's chunks (embedding, layers, head), with the weights that one GPU has of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from predict.model.spec import DENSE, LayerKind
from predict.rank.weights import Weights, embedding_weights, joining_weights, layer_weights, output_weights
from predict.run.stages import Stage, stages_of_ranks
from predict.run.training_run import TrainingRun
from predict.workload.whole_layers import plain_embedding, plain_head, plain_layer
from sampling.cells.matrices import Shape, products_on_rank

Role = Literal["embedding", "layer", "joining", "head"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Unit:
    """A piece of a chunk that is computed, and gathered by FSDP, as a whole."""

    role: Role
    weights: Weights
    kind: LayerKind | None = None
    """The kind of a layer; None for the other roles."""
    recompute: str = "none"

    @property
    def name(self) -> str:
        """The name that benchmarks and reports give it: embedding, full_dense, full_moe, head."""
        return self.kind.name if self.kind else self.role


@dataclass(frozen=True, kw_only=True, slots=True)
class ChunkUnits:
    """The units of a chunk in the order of a microbatch's forward."""

    units: tuple[Unit, ...]

    @property
    def layers(self) -> int:
        return sum(unit.role == "layer" for unit in self.units)


def chunks_of_ranks(run: TrainingRun) -> tuple[tuple[ChunkUnits, ...], ...]:
    """The chunks of each pipeline rank. The run's schedule is a named one, not `best`."""
    of_kind = {kind: _weights(run, kind) for kind in dict.fromkeys(run.model.kinds())}
    return tuple(tuple(_chunk(run, stage, of_kind) for stage in stages) for stages in stages_of_ranks(run))


def _chunk(run: TrainingRun, stage: Stage, of_kind: dict[LayerKind, Weights]) -> ChunkUnits:
    units = [embedding_unit(run)] if stage.first else []
    recompute = run.plan.recompute
    again = run.plan.fully_recomputed(len(stage.kinds))
    for place, kind in enumerate(stage.kinds):
        repeats = "none" if recompute == "full" and place >= again else recompute
        units.append(Unit(role="layer", kind=kind, weights=of_kind[kind], recompute=repeats))
    if stage.last:
        units += head_units(run, shares_embedding=stage.shared_table, has_embedding=not stage.further_embedding)
    return ChunkUnits(units=tuple(units))


def layer_unit(run: TrainingRun, kind: LayerKind) -> Unit:
    """A layer, recomputed as the plan says."""
    return Unit(role="layer", kind=kind, weights=_weights(run, kind), recompute=run.plan.recompute)


def _weights(run: TrainingRun, kind: LayerKind) -> Weights:
    if run.execution.whole_layers and kind == DENSE and run.model.attention.IS_PLAIN:
        return Weights(dense=plain_layer(run).elements)
    return layer_weights(run.model, run.plan, kind)


def embedding_unit(run: TrainingRun) -> Unit:
    if not run.execution.whole_layers:
        return Unit(role="embedding", weights=embedding_weights(run.model, run.plan))
    return Unit(role="embedding", weights=Weights(dense=plain_embedding(run).elements))


def head_units(run: TrainingRun, *, shares_embedding: bool, has_embedding: bool) -> list[Unit]:
    """The head, and what predicts more tokens, on a rank that has the embedding or not."""
    head = _head(run, shares_embedding=shares_embedding)
    return [head, *_further_tokens(run, has_embedding=has_embedding)]


def _head(run: TrainingRun, *, shares_embedding: bool) -> Unit:
    if not run.execution.whole_layers:
        return Unit(role="head", weights=output_weights(run.model, run.plan, shares_embedding=shares_embedding))
    return Unit(role="head", weights=Weights(dense=plain_head(run, shares_embedding=shares_embedding).elements))


def _further_tokens(run: TrainingRun, *, has_embedding: bool) -> list[Unit]:
    """Multi-token prediction: for each further token a joining product, a layer and another pass through the head; for all of
    them an embedding, a second one where the rank has none (Megatron-Core, gpt_model.py, `mtp_process`)."""
    model, plan = run.model, run.plan
    kind = model.mtp_kind
    one = [
        Unit(role="joining", weights=joining_weights(model, plan)),
        Unit(role="layer", kind=kind, weights=layer_weights(model, plan, kind), recompute=plan.recompute),
        Unit(role="head", weights=Weights()),
    ]
    further = one * model.mtp_layers
    if further and not has_embedding:
        further[0] = replace(further[0], weights=further[0].weights + embedding_weights(model, plan))
    return further


def weights_of_chunks(chunks: tuple[ChunkUnits, ...]) -> Weights:
    """All weights of a rank, whose chunks these are."""
    return sum((unit.weights for chunk in chunks for unit in chunk.units), Weights())


def linear_shapes(run: TrainingRun, kind: LayerKind) -> frozenset[Shape]:
    """[out, in] of the linear modules of a layer on one rank, without duplicates."""
    model, plan = run.model, run.plan
    mixer, feed_forward = model.mixer(kind), model.feed_forward(kind)
    divided = (
        (mixer.matrices(model), plan.tp),
        (feed_forward.matrices(model), plan.tp),
        (feed_forward.expert_matrices(model), plan.etp),
    )
    return frozenset(
        shape
        for matrices, ranks in divided
        for shape in products_on_rank((matrix for matrix in matrices if matrix.is_linear), ranks).values()
    )
