"""The end of a step in plain torch: DDP reduces the gradients with the last backward, then AdamW updates the weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from predict.rank.blocks import Calls, Message
from predict.run.stages import Stage
from predict.run.training_run import TrainingRun
from predict.workload.whole_layers import layer_call, plain_embedding, plain_head, plain_layer
from sampling.call import Call, Counted, Phase
from sampling.cells.data_parallel import GradientCell, ShardedAdamW
from sampling.collectives.kinds import AllReduce
from sampling.operators.optimizer import AdamW, GradientScale


@dataclass(frozen=True, kw_only=True, slots=True)
class RankWeights:
    """The weights that one rank updates, and how many of their elements belong to its layers."""

    elements: int
    tensors: int
    elements_of_layers: int
    layers: int


def weights_of(run: TrainingRun, stages: Sequence[Stage]) -> RankWeights:
    """All that a rank holds."""
    layers = sum(len(stage.kinds) for stage in stages)
    of_layers = plain_layer(run) * layers
    weights = of_layers
    for stage in stages:
        if stage.first:
            weights += plain_embedding(run)
        if stage.last:
            weights += plain_head(run, shares_embedding=stage.shared_table)
    return RankWeights(
        elements=weights.elements,
        tensors=weights.tensors,
        elements_of_layers=of_layers.elements,
        layers=layers,
    )


def gradient_reduction(run: TrainingRun, weights: RankWeights) -> Calls:
    """A measured cell of the rank's layers under DDP, less those layers' own backward, scaled to all weights of the rank; a
    plain all-reduce with tensor parallelism, which no cell covers."""
    dp = run.plan.dp
    if dp == 1:
        return ()
    layer = layer_call(run)
    if layer.tp > 1:
        size = layer.item_bytes * weights.elements
        reduce = AllReduce(size_bytes=size, ranks=dp, ranks_per_node=max(1, dp // _nodes_of_replicas(run)))
        return (Message(call=reduce, phase="forward", group="dp"),)
    phase: Phase = "backward" if run.microbatches == 1 else "backward_accumulate"
    cell = GradientCell(**{**layer.fields(), "group_nodes": _nodes_of_replicas(run)}, layers=weights.layers, dp=dp)
    scale = weights.elements / weights.elements_of_layers
    return (
        Counted(call=cell, phase=phase, count=scale),
        Counted(call=layer, phase=phase, count=-scale * weights.layers),
    )


def _nodes_of_replicas(run: TrainingRun) -> int:
    """Nodes over which the replicas of one rank are spread; they are tp GPUs apart."""
    replicas_per_node = max(1, run.cluster.gpus_per_node // run.plan.tp)
    return -(-run.plan.dp // replicas_per_node)


def optimizer(run: TrainingRun, weights: RankWeights) -> Calls:
    """AdamW, sharded over the replicas with ZeRO; pipelines scale the gradients of their microbatches first."""
    plan, dtype = run.plan, run.precision
    update: Call
    if plan.zero and plan.dp > 1:
        update = ShardedAdamW(
            dtype=dtype,
            parameters=weights.elements,
            tensors=weights.tensors,
            dp=plan.dp,
            group_nodes=_nodes_of_replicas(run),
        )
    else:
        update = AdamW(dtype=dtype, parameters=weights.elements, tensors=weights.tensors, tp=plan.tp)
    calls = [Counted(call=update, phase="step")]
    if plan.pp > 1:
        scale = GradientScale(dtype=dtype, parameters=weights.elements, tensors=weights.tensors)
        calls.insert(0, Counted(call=scale, phase="step"))
    return tuple(calls)
