"""What each pipeline rank of a run does: the calls of one forward, one backward, and of the end of the step.

Ranks of one stage do the same, so a stage stands for its tp · dp ranks. Calls are counted, never timed, here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from predict.workload.run import TrainingRun
from sampling.call import Call, Counted, Phase
from sampling.collectives import AllReduce, SendRecv
from sampling.compute import Request
from sampling.operators.elementwise import ResidualAdd
from sampling.operators.head import OutputHead
from sampling.operators.layer import DenseLayer, GradientCell
from sampling.operators.optimizer import AdamW, GradientScale, ShardedAdamW
from sampling.operators.pipeline_action import PipelineAction
from sampling.operators.vocabulary import Embedding


@dataclass(frozen=True, kw_only=True, slots=True)
class StageCalls:
    """One pipeline rank's calls.

    `forward` and `backward` are of one microbatch (the backward an average over them: the first finds no gradients to
    add to, the others do); `gradients` what reducing them over the replicas adds to the last backward; `step` what
    follows the pipeline; `send` one microbatch's way over the edge to a neighbour stage.
    """

    layers: int
    forward: tuple[Counted, ...]
    backward: tuple[Counted, ...]
    gradients: tuple[Counted, ...]
    step: tuple[Counted, ...]
    send: tuple[Counted, ...]

    def all_calls(self) -> tuple[Counted, ...]:
        return (*self.forward, *self.backward, *self.gradients, *self.step, *self.send)


def decompose(run: TrainingRun) -> tuple[StageCalls, ...]:
    """The calls of every pipeline stage, first to last."""
    shares = layers_of_stages(run.model.layers, run.plan.pp)
    return tuple(_stage(run, index, layers) for index, layers in enumerate(shares))


def layers_of_stages(layers: int, stages: int) -> tuple[int, ...]:
    """Layers a stage; those that do not divide evenly go to the first stages."""
    even, extra = divmod(layers, stages)
    return tuple(even + (stage < extra) for stage in range(stages))


def layer_call(run: TrainingRun) -> DenseLayer:
    """One decoder layer of the run on one tensor-parallel rank."""
    model = run.model
    return DenseLayer(
        **_common(run),
        heads=model.heads,
        kv_heads=model.kv_heads,
        head_dim=model.head_dim,
        ffn=model.ffn,
        gated=model.gated,
        norm=model.norm,
        rope=model.rope,
        qkv_bias=model.attention_bias,
        bias=model.mlp_bias,
    )


def _common(run: TrainingRun) -> dict[str, Any]:
    return {
        "dtype": run.precision,
        "batch": run.batch.micro,
        "seq_len": run.batch.seq_len,
        "hidden": run.model.hidden,
        "tp": run.plan.tp,
        "sp": run.plan.sp,
    }


def _stage(run: TrainingRun, index: int, layers: int) -> StageCalls:
    first, last, pipelined = index == 0, index == run.plan.pp - 1, run.plan.pp > 1
    layer = Counted(call=layer_call(run), phase="forward", count=layers)
    forward = [layer]
    backward = _over_microbatches(layer.call, layers, run.microbatches)
    if run.plan.recompute == "full":
        backward.append(layer)
    if first:
        forward += _embedding_forward(run)
        backward += _embedding_backward(run)
    if last:
        head = OutputHead(**_common(run), vocab=run.model.vocab, norm=run.model.norm)
        forward.append(Counted(call=head, phase="forward"))
        backward += _over_microbatches(head, 1, run.microbatches)
    send: tuple[Counted, ...] = ()
    if pipelined:
        action = Counted(call=PipelineAction(dtype=run.precision, size_bytes=_activation_bytes(run)), phase="step")
        forward.append(action)
        backward.append(action)
        send = (Counted(call=_send(run), phase="forward"),)
    weights = _weights(run, layers, first=first, last=last)
    return StageCalls(
        layers=layers,
        forward=tuple(forward),
        backward=tuple(backward),
        gradients=(*_gradients(run, layers, weights), *_tied_gradient(run, first=first, last=last)),
        step=_step(run, weights),
        send=send,
    )


def _over_microbatches(call: Call, count: int, microbatches: int) -> list[Counted]:
    """An average backward: one in `microbatches` makes the gradients, the others add to them."""
    fresh = Counted(call=call, phase="backward", count=count / microbatches)
    if microbatches == 1:
        return [fresh]
    return [fresh, Counted(call=call, phase="backward_accumulate", count=count * (microbatches - 1) / microbatches)]


def _embedding_forward(run: TrainingRun) -> list[Counted]:
    calls = [Counted(call=_embedding(run), phase="forward")]
    if not run.model.rope:
        tokens = run.batch.micro * run.batch.seq_len
        add = ResidualAdd(dtype=run.precision, tokens=tokens, hidden=run.model.hidden)
        calls += [Counted(call=_positions(run), phase="forward"), Counted(call=add, phase="forward")]
    return calls


def _embedding_backward(run: TrainingRun) -> list[Counted]:
    if run.model.tied and run.plan.pp == 1:
        # the head's backward came first and left its gradient in the shared weight
        calls = [Counted(call=_embedding(run), phase="backward_accumulate")]
    else:
        calls = _over_microbatches(_embedding(run), 1, run.microbatches)
    if not run.model.rope:
        calls += _over_microbatches(_positions(run), 1, run.microbatches)
    return calls


def _embedding(run: TrainingRun) -> Embedding:
    return Embedding(**_common(run), vocab=run.model.vocab)


def _positions(run: TrainingRun) -> Embedding:
    return Embedding(**{**_common(run), "batch": 1}, vocab=run.model.max_positions)


def _activation_bytes(run: TrainingRun) -> int:
    layer = layer_call(run)
    return layer.item_bytes * layer.batch * layer.seq_len * layer.hidden // (layer.tp if layer.sp else 1)


def _send(run: TrainingRun) -> SendRecv:
    # neighbouring stages are tp · dp ranks apart: on one node only while those fit beside each other
    apart = run.plan.tp * run.plan.dp
    ranks_per_node = 2 if 2 * apart <= run.cluster.gpus_per_node else 1
    return SendRecv(size_bytes=_activation_bytes(run), ranks=2, ranks_per_node=ranks_per_node)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Weights:
    """Elements and tensors one rank updates; `elements_of_layers` of them belong to the layers."""

    elements: int
    tensors: int
    elements_of_layers: int


def _weights(run: TrainingRun, layers: int, *, first: bool, last: bool) -> _Weights:
    model, tp = run.model, run.plan.tp
    shapes = layer_call(run).weight_shapes()
    of_layers = layers * sum(math.prod(shape) for shape in shapes)
    elements, tensors = of_layers, layers * len(shapes)
    if first:
        tables = [model.vocab] if model.rope else [model.vocab, model.max_positions]
        elements += sum(tables) * model.hidden // tp
        tensors += len(tables)
    if last:
        norms = 1 if model.norm == "rms" else 2
        elements += norms * model.hidden
        tensors += norms
        if not (model.tied and first):
            elements += model.vocab * model.hidden // tp
            tensors += 1
    return _Weights(elements=elements, tensors=tensors, elements_of_layers=of_layers)


def _gradients(run: TrainingRun, layers: int, weights: _Weights) -> tuple[Counted, ...]:
    """Reducing gradients over the replicas: a measured cell of the stage's layers, less those layers' own backward,
    scaled to all the weights of the stage; plain all-reduces where no cell covers the plan.
    """
    dp = run.plan.dp
    if dp == 1:
        return ()
    layer = layer_call(run)
    if layer.tp > 1:
        ranks_per_node = min(dp, max(1, run.cluster.gpus_per_node // run.plan.tp))
        reduce = AllReduce(size_bytes=layer.item_bytes * weights.elements, ranks=dp, ranks_per_node=ranks_per_node)
        return (Counted(call=reduce, phase="forward"),)
    phase: Phase = "backward" if run.microbatches == 1 else "backward_accumulate"
    cell = GradientCell(**layer.fields(), layers=layers, dp=dp)
    scale = weights.elements / weights.elements_of_layers
    return (
        Counted(call=cell, phase=phase, count=scale),
        Counted(call=layer, phase=phase, count=-scale * layers),
    )


def _tied_gradient(run: TrainingRun, *, first: bool, last: bool) -> tuple[Counted, ...]:
    """The end stages of a pipeline each keep a copy of a tied weight and add up its gradient, as Megatron does."""
    if not run.model.tied or first == last:
        return ()
    layer = layer_call(run)
    size = layer.item_bytes * run.model.vocab * layer.hidden // layer.tp
    ranks_per_node = 2 if run.cluster.nodes == 1 else 1
    return (Counted(call=AllReduce(size_bytes=size, ranks=2, ranks_per_node=ranks_per_node), phase="forward"),)


def _step(run: TrainingRun, weights: _Weights) -> tuple[Counted, ...]:
    plan, dtype = run.plan, run.precision
    optimizer: Call
    if plan.zero and plan.dp > 1:
        optimizer = ShardedAdamW(dtype=dtype, parameters=weights.elements, tensors=weights.tensors, dp=plan.dp)
    else:
        optimizer = AdamW(dtype=dtype, parameters=weights.elements, tensors=weights.tensors, tp=plan.tp)
    calls = [Counted(call=optimizer, phase="step")]
    if plan.pp > 1:
        scale = GradientScale(dtype=dtype, parameters=weights.elements, tensors=weights.tensors)
        calls.insert(0, Counted(call=scale, phase="step"))
    return tuple(calls)


def requests_of_runs(runs: Iterable[TrainingRun]) -> dict[int, list[Request]]:
    """Every distinct call of the runs with the phases needed, by ranks a node: what a sampler must time for them."""
    phases: dict[int, dict[Call, dict[Phase, None]]] = {}
    for run in runs:
        wanted = phases.setdefault(run.cluster.gpus_per_node, {})
        for stage in decompose(run):
            for counted in stage.all_calls():
                wanted.setdefault(counted.call, {})[counted.phase] = None
    return {
        ranks: [Request(call=call, phases=tuple(of_call)) for call, of_call in wanted.items()]
        for ranks, wanted in phases.items()
    }
