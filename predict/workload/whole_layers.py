"""The whole-layer modules that stand for a run's layers, embedding and head, as operators that can be timed and priced.

Units are named as benchmarks name them: `embedding`, `head`, and each kind of layer by its own name.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from predict.layers.adapters import adapters_of
from predict.layers.routing import distribution_on_rank
from predict.model.patches import SCALES_AND_SHIFTS
from predict.model.spec import LayerKind, ModelSpec
from predict.rank.module import QUERY_KEY_VALUE
from predict.rank.share import RankShare, held_dtype, layer_weights
from predict.run.training_run import TrainingRun
from sampling.arithmetic.operator import Operator
from sampling.cells.head import OutputHead
from sampling.cells.layer import DenseLayer
from sampling.cells.moe_layer import MoELayer
from sampling.operators.vocabulary import Embedding

EMBEDDING, HEAD = "embedding", "head"


def whole_layer_calls(run: TrainingRun) -> dict[str, Operator]:
    """The module of each unit. Kinds of layer without a module are missing."""
    kinds = (module_kind(run.model, kind) for kind in dict.fromkeys(run.model.kinds()))
    calls = {kind.name: _layer_of_kind(run, kind) for kind in kinds if kind}
    return {**calls, EMBEDDING: embedding_call(run), HEAD: head_call(run)}


def module_kind(model: ModelSpec, kind: LayerKind) -> LayerKind | None:
    """The kind whose module stands for layers of `kind`; None where there is no such module.

    Attention in a window is timed as full attention of a layer that is otherwise alike.
    """
    if not model.mixer(kind).IS_PLAIN:
        return None
    return replace(kind, mixer="full")


def are_priced_whole(run: TrainingRun) -> bool:
    """Whether all layers of a run in plain torch are timed and priced in one piece each: no module stands for layers of other kinds, for
    an encoder's, a vision tower's, those with more norms, or layers with adapters, and those are priced operator by operator."""
    model = run.model
    if not run.execution.whole_layers or model.bidirectional or model.no_positions:
        return False
    if model.qk_norm or model.norms_a_layer > 2 or any(kind.mixer == "sliding" for kind in model.layer_kinds):
        return False
    if run.adapters.are_trained or run.vision.images:
        return False
    return not any(kind.parts < 2 or model.mixer(kind).IS_RECURRENT for kind in model.layer_kinds)


def kinds_without_module(run: TrainingRun) -> list[str]:
    """Names of the kinds of layer that no whole-layer module stands for."""
    return [kind.name for kind in dict.fromkeys(run.model.kinds()) if module_kind(run.model, kind) is None]


def layer_call(run: TrainingRun) -> DenseLayer:
    """One dense decoder layer on one tensor-parallel rank."""
    model = run.model
    own_bias = "" if model.output_bias == model.mlp_bias else "with" if model.output_bias else "without"
    return DenseLayer(
        **common_fields(run),
        heads=model.heads,
        kv_heads=model.kv_heads,
        head_dim=model.head_dim,
        ffn=model.ffn,
        gated=model.gated,
        norm=model.norm,
        rope=model.rope,
        qkv_bias=model.attention_bias,
        bias=model.mlp_bias,
        output_bias=own_bias,
    )


def embedding_call(run: TrainingRun) -> Embedding:
    fields = {**common_fields(run), "dtype": _dtype_of_embedding_and_head(run)}
    return Embedding(**fields, vocab=RankShare(run=run).vocabulary)


def head_call(run: TrainingRun) -> OutputHead:
    """Final norm, output projection and loss."""
    fields = {**common_fields(run), "dtype": _dtype_of_embedding_and_head(run)}
    return OutputHead(**fields, vocab=RankShare(run=run).vocabulary, norm=run.model.norm)


def module_parameters(run: TrainingRun) -> int:
    """Weights that the modules of all layers, embedding and head hold on one rank; each kind of layer needs a module."""
    calls = whole_layer_calls(run)
    table = run.model.vocab * run.model.hidden // run.plan.tp
    total = run.model.final_norm_parameters + table * (1 if run.model.tied else 2)
    for kind in run.model.kinds():
        call = calls[kind.name]
        assert isinstance(call, DenseLayer | MoELayer)
        total += sum(math.prod(shape) for shape in call.weight_shapes())
    return total


def common_fields(run: TrainingRun) -> dict[str, Any]:
    """The fields that all modules of a run share."""
    return {
        "dtype": run.precision,
        "batch": run.batch.micro,
        "seq_len": run.batch.seq_len,
        "hidden": run.model.hidden,
        "tp": run.plan.tp,
        "sp": run.plan.sp,
        "group_nodes": -(-run.plan.tp // run.cluster.gpus_per_node),
    }


def _layer_of_kind(run: TrainingRun, kind: LayerKind) -> Operator:
    dense, experts = layer_call(run), run.model.experts
    if not kind.sparse or experts is None:
        return dense
    return MoELayer.like(
        replace(dense, gated=experts.gated),
        inter=experts.ffn,
        experts=experts.count,
        topk=experts.topk,
        distribution=distribution_on_rank(run.execution.expert_load),
        shared_inter=experts.shared_ffn,
    )


def _dtype_of_embedding_and_head(run: TrainingRun) -> str:
    """Embedding and head stay in 16 or 32 bits where only the layers' products are in the run's precision."""
    return run.precision if run.execution.whole_layers else held_dtype(run)


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
    """One plain layer."""
    shapes = layer_call(run).weight_shapes()
    return PlainWeights(elements=sum(math.prod(shape) for shape in shapes), tensors=len(shapes))


def plain_layers(run: TrainingRun, kinds: Iterable[LayerKind]) -> PlainWeights:
    """The weights of layers of these kinds that are trained."""
    model, found = run.model, PlainWeights()
    if are_priced_whole(run):
        return plain_layer(run) * len(tuple(kinds))
    for kind in kinds:
        if run.adapters.are_trained:
            for each in adapters_of(run, kind):
                found += PlainWeights(elements=each.elements, tensors=A_AND_B)
            continue
        parts = (model.mixer(kind), model.feed_forward(kind))
        biased = sum(1 + matrix.bias for part in parts for matrix in part.matrices(model))
        if model.joint_qkv and model.mixer(kind).IS_PLAIN:
            biased -= (QUERY_KEY_VALUE - 1) * (1 + model.attention_bias)
        beside = model.norms_of(kind) * model.norm_parameters // model.hidden + model.layer_scale * kind.parts
        beside += QK_NORMS * model.qk_norm * kind.has_mixer
        found += PlainWeights(elements=layer_weights(model, run.plan, kind).total, tensors=biased + beside)
    return found


QK_NORMS = 2
"""Norms of the heads of queries and keys, each one tensor."""
A_AND_B = 2
"""Tensors of an adapter."""


def plain_embedding(run: TrainingRun) -> PlainWeights:
    """The table of the vocabulary, and the table of the positions where those are learnt; of a vision tower the product over pixels."""
    model = run.model
    if patches := model.patches:
        tensors = 1 + patches.bias + bool(patches.positions) + bool(patches.class_tokens)
        norm_tensors = model.embedding_norm * model.norm_parameters // model.hidden
        return PlainWeights(elements=model.embedding_parameters, tensors=tensors + norm_tensors)
    rows = [model.vocab, model.max_positions * model.learns_positions, model.token_types]
    tables = PlainWeights(elements=sum(rows) * model.hidden // run.plan.tp, tensors=len([*filter(None, rows)]))
    if not model.embedding_norm:
        return tables
    return tables + PlainWeights(elements=model.norm_parameters, tensors=model.norm_parameters // model.hidden)


def plain_head(run: TrainingRun, *, shares_embedding: bool) -> PlainWeights:
    """The final norm and, unless the rank's embedding serves for it, the output matrix; of an encoder what else precedes the logits; of a
    vision tower its projectors."""
    model = run.model
    further = 4 + model.mlp_bias if model.head_transform else 0
    norms = model.final_norm * model.norm_parameters // model.hidden
    if model.patches:
        projectors = model.patches.projectors
        tensors = sum(1 + matrix.bias for each in projectors for matrix in each.matrices)
        tensors += sum(SCALES_AND_SHIFTS[each.norm] for each in projectors)
        elements = model.final_norm_parameters + model.head_parameters
        return PlainWeights(elements=elements, tensors=norms + tensors)
    norm = PlainWeights(elements=model.final_norm_parameters, tensors=norms + further)
    if shares_embedding:
        return norm
    return norm + PlainWeights(elements=run.model.vocab * run.model.hidden // run.plan.tp, tensors=1)


def plain_tower(run: TrainingRun) -> PlainWeights:
    """The part of the vision tower and its projectors that is trained."""
    tower, projector, found = run.tower, run.projector, PlainWeights()
    if tower is None or projector is None:
        return found
    if not tower.adapters.are_trained:
        found += plain_embedding(tower) + plain_layers(tower, tower.model.kinds())
    if not projector.adapters.are_trained:
        found += plain_head(projector, shares_embedding=False)
    return found
