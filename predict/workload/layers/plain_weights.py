"""Weights of plain torch's modules on one rank: layers that run whole, embedding and head, whose vocabulary is not padded."""

from __future__ import annotations

import math
from dataclasses import dataclass

from predict.run.training_run import TrainingRun
from predict.workload.layers.whole_layers import layer_call


@dataclass(frozen=True, kw_only=True, slots=True)
class PlainWeights:
    """Elements of weights, and the tensors that they lie in."""

    elements: int = 0
    tensors: int = 0

    def __add__(self, other: PlainWeights) -> PlainWeights:
        return PlainWeights(elements=self.elements + other.elements, tensors=self.tensors + other.tensors)

    def __mul__(self, count: int) -> PlainWeights:
        return PlainWeights(elements=self.elements * count, tensors=self.tensors * count)


def plain_layer(run: TrainingRun) -> PlainWeights:
    """One dense layer."""
    shapes = layer_call(run).weight_shapes()
    return PlainWeights(elements=sum(math.prod(shape) for shape in shapes), tensors=len(shapes))


def plain_embedding(run: TrainingRun) -> PlainWeights:
    """The table of the vocabulary, and that of the positions where those are learnt."""
    tables = [run.model.vocab] if run.model.rope else [run.model.vocab, run.model.max_positions]
    return PlainWeights(elements=sum(tables) * run.model.hidden // run.plan.tp, tensors=len(tables))


def plain_head(run: TrainingRun, *, shares_embedding: bool) -> PlainWeights:
    """The final norm and, unless the rank's embedding serves for it, the output matrix."""
    norm = PlainWeights(
        elements=run.model.final_norm_parameters, tensors=run.model.final_norm_parameters // run.model.hidden
    )
    if shares_embedding:
        return norm
    return norm + PlainWeights(elements=run.model.vocab * run.model.hidden // run.plan.tp, tensors=1)
