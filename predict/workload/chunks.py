"""What one chunk of a pipeline rank does to a microbatch: the calls of its forward, its backward and its send."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from predict.schedules.order import Placement
from predict.workload.run import TrainingRun
from sampling.call import Call, Counted
from sampling.collectives import SendRecv
from sampling.operators.elementwise import ResidualAdd
from sampling.operators.head import OutputHead
from sampling.operators.layer import DenseLayer
from sampling.operators.pipeline_action import PipelineAction
from sampling.operators.vocabulary import Embedding

Calls = tuple[Counted, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ChunkCalls:
    """One chunk, a stage of the model.

    The backward is an average over the microbatches: the first finds no gradients to add to, the others do. Its halves
    are empty where the schedule does not run them apart. `send` is the way of an activation to the next stage, or of its
    gradient back; empty where that is on the same rank.
    """

    layers: int
    forward: Calls
    backward: Calls
    backward_input: Calls
    backward_weight: Calls
    send: Calls

    def all_calls(self) -> Calls:
        return (*self.forward, *self.backward, *self.backward_input, *self.backward_weight, *self.send)


def chunk_calls(
    run: TrainingRun, placement: Placement, rank: int, chunk: int, *, layers: int, halves: bool
) -> ChunkCalls:
    """The calls of a chunk with so many layers; with `halves`, those of the parted backward too."""
    stages = placement.stages[rank]
    first, last = stages[chunk] == 0, stages[chunk] == placement.depth - 1
    microbatches = run.microbatches // placement.chain_count
    layer = layer_call(run)
    forward: Calls = (Counted(call=layer, phase="forward", count=layers),)
    backward = _backward(layer, layers, microbatches)
    if run.plan.recompute == "full":
        backward = backward.with_whole(forward)
    if first:
        forward += _embedding_forward(run)
        shared_table = run.model.tied and placement.depth - 1 in stages
        backward = backward.with_table(_embedding_backward(run, microbatches, shared_table=shared_table))
    if last:
        head = OutputHead(**common_fields(run), vocab=run.model.vocab, norm=run.model.norm)
        forward += (Counted(call=head, phase="forward"),)
        backward = backward.and_(_backward(head, 1, microbatches))
    action = _action(run)
    return ChunkCalls(
        layers=layers,
        forward=forward + action,
        backward=backward.whole + action,
        backward_input=backward.of_input + action if halves else (),
        backward_weight=backward.of_weight if halves else (),
        send=_send(run, placement, rank, chunk),
    )


@dataclass(frozen=True, slots=True)
class _Backward:
    """The calls of a backward, whole and in its halves."""

    whole: Calls
    of_input: Calls
    of_weight: Calls

    def and_(self, other: _Backward) -> _Backward:
        return _Backward(self.whole + other.whole, self.of_input + other.of_input, self.of_weight + other.of_weight)

    def with_whole(self, calls: Calls) -> _Backward:
        return _Backward(self.whole + calls, self.of_input, self.of_weight)

    def with_table(self, calls: Calls) -> _Backward:
        """What arrives at the table of embeddings has nowhere further to go: all of its backward is the weight's."""
        return _Backward(self.whole + calls, self.of_input, self.of_weight + calls)


def _backward(call: Call, count: float, microbatches: int) -> _Backward:
    """The half of the weights is timed with fresh gradients; that later microbatches add to those of the first costs it
    what it costs the whole backward."""
    inputs = Counted(call=call, phase="backward_input", count=count)
    weights = [Counted(call=call, phase="backward_weight", count=count)]
    if microbatches > 1:
        later = count * (microbatches - 1) / microbatches
        weights.append(Counted(call=call, phase="backward_accumulate", count=later))
        weights.append(Counted(call=call, phase="backward", count=-later))
    return _Backward(_over_microbatches(call, count, microbatches), (inputs,), tuple(weights))


def _over_microbatches(call: Call, count: float, microbatches: int) -> Calls:
    """An average backward: one in `microbatches` makes the gradients, the others add to them."""
    fresh = Counted(call=call, phase="backward", count=count / microbatches)
    if microbatches == 1:
        return (fresh,)
    return (fresh, Counted(call=call, phase="backward_accumulate", count=count * (microbatches - 1) / microbatches))


def _embedding_forward(run: TrainingRun) -> Calls:
    calls: Calls = (Counted(call=_embedding(run), phase="forward"),)
    if not run.model.rope:
        tokens = run.batch.micro * run.batch.seq_len
        add = ResidualAdd(dtype=run.precision, tokens=tokens, hidden=run.model.hidden)
        calls += (Counted(call=_positions(run), phase="forward"), Counted(call=add, phase="forward"))
    return calls


def _embedding_backward(run: TrainingRun, microbatches: int, *, shared_table: bool) -> Calls:
    if shared_table:
        # the head's backward came first and left its gradient in the shared weight
        calls: Calls = (Counted(call=_embedding(run), phase="backward_accumulate"),)
    else:
        calls = _over_microbatches(_embedding(run), 1, microbatches)
    if not run.model.rope:
        calls += _over_microbatches(_positions(run), 1, microbatches)
    return calls


def _embedding(run: TrainingRun) -> Embedding:
    return Embedding(**common_fields(run), vocab=run.model.vocab)


def _positions(run: TrainingRun) -> Embedding:
    return Embedding(**{**common_fields(run), "batch": 1}, vocab=run.model.max_positions)


def _action(run: TrainingRun) -> Calls:
    if run.plan.pp == 1:
        return ()
    return (Counted(call=PipelineAction(dtype=run.precision, size_bytes=_activation_bytes(run)), phase="step"),)


def _activation_bytes(run: TrainingRun) -> int:
    layer = layer_call(run)
    return layer.item_bytes * layer.batch * layer.seq_len * layer.hidden // (layer.tp if layer.sp else 1)


def _send(run: TrainingRun, placement: Placement, rank: int, chunk: int) -> tuple[Counted, ...]:
    holders = placement.holders()
    holder = holders.get((placement.chains[chunk], placement.stages[rank][chunk] + 1))
    if holder is None or holder[0] == rank:
        return ()
    size = _activation_bytes(run)
    return (
        Counted(
            call=SendRecv(size_bytes=size, ranks=2, ranks_per_node=pair_on_a_node(run, rank, holder[0])),
            phase="forward",
        ),
    )


def pair_on_a_node(run: TrainingRun, rank: int, other: int) -> int:
    """Ranks a node, 2 or 1, of a pair of pipeline ranks: each is a block of tp · dp GPUs, one block after the other, and
    the pair is as slow as its GPUs that are furthest apart."""
    block, per_node = run.plan.tp * run.plan.dp, run.cluster.gpus_per_node
    apart = any((rank * block + i) // per_node != (other * block + i) // per_node for i in range(block))
    return 1 if apart else 2


def layer_call(run: TrainingRun) -> DenseLayer:
    """One decoder layer of the run on one tensor-parallel rank."""
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


def common_fields(run: TrainingRun) -> dict[str, Any]:
    return {
        "dtype": run.precision,
        "batch": run.batch.micro,
        "seq_len": run.batch.seq_len,
        "hidden": run.model.hidden,
        "tp": run.plan.tp,
        "sp": run.plan.sp,
        "group_nodes": -(-run.plan.tp // run.cluster.gpus_per_node),
    }
