"""What a pipeline rank does once a step: reduce the gradients over its replicas, then update the weights."""

from __future__ import annotations

import math
from dataclasses import dataclass

from predict.run.training_run import TrainingRun
from predict.workload.chunks import pair_on_a_node
from predict.workload.rank.weights import padded_vocabulary
from predict.workload.whole_layers import layer_call
from sampling.call import Call, Counted, Phase
from sampling.cells.gradient_cell import GradientCell
from sampling.cells.sharded_adamw import ShardedAdamW
from sampling.collectives.kinds import AllReduce
from sampling.hardware.cluster import DTYPE_BYTES
from sampling.operators.optimizer import AdamW, GradientScale


@dataclass(frozen=True, kw_only=True, slots=True)
class Ends:
    """Which ends of the model a rank holds."""

    first: bool
    last: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Weights:
    """Elements and tensors one rank updates; `elements_of_layers` of them belong to the layers."""

    elements: int
    tensors: int
    elements_of_layers: int


def weights_of(run: TrainingRun, layers: int, ends: Ends) -> Weights:
    model, tp = run.model, run.plan.tp
    shapes = layer_call(run).weight_shapes()
    of_layers = layers * sum(math.prod(shape) for shape in shapes)
    elements, tensors = of_layers, layers * len(shapes)
    if ends.first:
        tables = [model.vocab] if model.rope else [model.vocab, model.max_positions]
        elements += sum(tables) * model.hidden // tp
        tensors += len(tables)
    if ends.last:
        norms = 1 if model.norm == "rms" else 2
        elements += norms * model.hidden
        tensors += norms
        if not (model.tied and ends.first):
            elements += model.vocab * model.hidden // tp
            tensors += 1
    return Weights(elements=elements, tensors=tensors, elements_of_layers=of_layers)


def reduce_over_replicas(run: TrainingRun, layers: int, weights: Weights) -> tuple[Counted, ...]:
    """Reducing gradients over the replicas: a measured cell of the stage's layers, less those layers' own backward,
    scaled to all the weights of the stage; plain all-reduces where no cell covers the plan.
    """
    dp = run.plan.dp
    if dp == 1:
        return ()
    layer = layer_call(run)
    if layer.tp > 1:
        size = layer.item_bytes * weights.elements
        reduce = AllReduce(size_bytes=size, ranks=dp, ranks_per_node=max(1, dp // _nodes_of_replicas(run)))
        return (Counted(call=reduce, phase="forward"),)
    phase: Phase = "backward" if run.microbatches == 1 else "backward_accumulate"
    cell = GradientCell(**{**layer.fields(), "group_nodes": _nodes_of_replicas(run)}, layers=layers, dp=dp)
    scale = weights.elements / weights.elements_of_layers
    return (
        Counted(call=cell, phase=phase, count=scale),
        Counted(call=layer, phase=phase, count=-scale * layers),
    )


def _nodes_of_replicas(run: TrainingRun) -> int:
    """Nodes over which the replicas of one rank are spread: they stand tp GPUs apart."""
    replicas_a_node = max(1, run.cluster.gpus_per_node // run.plan.tp)
    return -(-run.plan.dp // replicas_a_node)


def add_up_tied(run: TrainingRun, ends: Ends) -> tuple[Counted, ...]:
    """The end stages of a pipeline, where they are on two ranks, each keep a copy of a tied weight and add up its
    gradient, as Megatron does."""
    if not run.model.tied or ends.first == ends.last:
        return ()
    dtype, vocab = run.precision, run.model.vocab
    if not run.execution.whole_layers:
        dtype, vocab = run.execution.gradient_dtype, padded_vocabulary(vocab, run.plan.tp)
    size = DTYPE_BYTES[dtype] * vocab * run.model.hidden // run.plan.tp
    reduce = AllReduce(size_bytes=size, ranks=2, ranks_per_node=pair_on_a_node(run, 0, run.plan.pp - 1))
    return (Counted(call=reduce, phase="forward"),)


def add_up_twins(run: TrainingRun, elements: int, rank: int) -> Counted:
    """Of two opposite chains: rank r and rank p − 1 − r hold copies of the same two stages, and add up their gradients."""
    size = DTYPE_BYTES[run.precision] * elements
    ranks_per_node = pair_on_a_node(run, rank, run.plan.pp - 1 - rank)
    return Counted(call=AllReduce(size_bytes=size, ranks=2, ranks_per_node=ranks_per_node), phase="forward")


def update(run: TrainingRun, weights: Weights) -> tuple[Counted, ...]:
    plan, dtype = run.plan, run.precision
    optimizer: Call
    if plan.zero and plan.dp > 1:
        optimizer = ShardedAdamW(
            dtype=dtype,
            parameters=weights.elements,
            tensors=weights.tensors,
            dp=plan.dp,
            group_nodes=_nodes_of_replicas(run),
        )
    else:
        optimizer = AdamW(dtype=dtype, parameters=weights.elements, tensors=weights.tensors, tp=plan.tp)
    calls = [Counted(call=optimizer, phase="step")]
    if plan.pp > 1:
        scale = GradientScale(dtype=dtype, parameters=weights.elements, tensors=weights.tensors)
        calls.insert(0, Counted(call=scale, phase="step"))
    return tuple(calls)
