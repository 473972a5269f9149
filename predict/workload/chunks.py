"""What one chunk of a pipeline rank does to a microbatch: the calls of its forward, its backward and its send."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from predict.model.layer_kinds import LayerKind
from predict.run.training_run import TrainingRun
from predict.schedules.order import Placement
from predict.workload.layers.embedding_and_head import embedding_blocks, head_blocks
from predict.workload.layers.layer import LayerBlocks, layer_blocks
from predict.workload.rank.blocks import Block, Blocks, Calls, Repeated, plain
from predict.workload.rank.groups import group_of
from predict.workload.rank.share import RankShare
from predict.workload.whole_layers import common_fields, embedding_call, head_call, layer_call
from sampling.call import Call, Counted
from sampling.cells.pipeline_action import PipelineAction
from sampling.collectives.kinds import SendRecv
from sampling.operators.elementwise import ResidualAdd
from sampling.operators.vocabulary import Embedding


@dataclass(frozen=True, kw_only=True, slots=True)
class ChunkCalls:
    """One chunk, a stage of the model.

    The backward is an average over the microbatches: the first finds no gradients to add to, the others do. Its halves
    are empty where the schedule does not run them apart. `send` is the way of an activation to the next stage, or of its
    gradient back; empty where that is on the same rank.
    """

    layers: int
    forward: Blocks
    backward: Blocks
    backward_input: Blocks
    backward_weight: Blocks
    send: Calls

    def blocks(self) -> Iterator[Block]:
        for blocks in (self.forward, self.backward, self.backward_input, self.backward_weight):
            for repeated in blocks:
                yield repeated.block

    def all_calls(self) -> Calls:
        return (*(call for block in self.blocks() for call in block.all_calls()), *self.send)


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """A chunk's place: the kinds of its layers, and which ends of the model it holds."""

    kinds: tuple[LayerKind, ...]
    first: bool
    last: bool
    shared_table: bool
    """The rank holds the other end too, with the table that head and embedding share."""


class Parts:
    """The blocks that the chunks of a run are made of: layers of a kind share theirs, as do all ranks."""

    def __init__(self, run: TrainingRun) -> None:
        self._rank = RankShare(run=run)
        self._layers: dict[LayerKind, LayerBlocks] = {}
        self._heads: dict[bool, LayerBlocks] = {}
        self._embedding: LayerBlocks | None = None

    def layer(self, kind: LayerKind) -> LayerBlocks:
        if kind not in self._layers:
            self._layers[kind] = layer_blocks(self._rank, kind)
        return self._layers[kind]

    def embedding(self) -> LayerBlocks:
        if self._embedding is None:
            self._embedding = embedding_blocks(self._rank)
        return self._embedding

    def head(self, *, shares_embedding: bool) -> LayerBlocks:
        if shares_embedding not in self._heads:
            self._heads[shares_embedding] = head_blocks(self._rank, shares_embedding=shares_embedding)
        return self._heads[shares_embedding]


def chunk_of_operators(run: TrainingRun, parts: Parts, stage: Stage, send: Calls, *, halves: bool) -> ChunkCalls:
    """A chunk of layers whose operators are priced one by one."""
    count = {kind: stage.kinds.count(kind) for kind in dict.fromkeys(stage.kinds)}
    layers = [(parts.layer(kind), many) for kind, many in count.items()]
    ends = [parts.embedding()] if stage.first else []
    if stage.last:
        ends.append(parts.head(shares_embedding=stage.shared_table))
    units = [*layers, *((end, 1) for end in ends)]

    def blocks(half: str) -> Blocks:
        return tuple(Repeated(block=getattr(of, half), count=many) for of, many in units)

    added = blocks("accumulation") if run.microbatches > 1 else ()
    return ChunkCalls(
        layers=len(stage.kinds),
        forward=blocks("forward"),
        backward=(*_repeated_forward(run, parts, stage.kinds), *blocks("backward"), *added),
        backward_input=blocks("backward_input") if halves else (),
        backward_weight=(*blocks("backward_weight"), *added) if halves else (),
        send=send,
    )


def _repeated_forward(run: TrainingRun, parts: Parts, kinds: tuple[LayerKind, ...]) -> Blocks:
    """Full recomputation: of all layers, or of the first ones of the chunk."""
    if run.plan.recompute != "full":
        return ()
    chosen = kinds[: run.plan.recompute_layers] if run.plan.recompute_method == "block" else kinds
    return tuple(Repeated(block=parts.layer(kind).again, count=chosen.count(kind)) for kind in dict.fromkeys(chosen))


def chunk_of_whole_layers(
    run: TrainingRun, stage: Stage, send: Calls, *, microbatches: int, halves: bool
) -> ChunkCalls:
    """A chunk of plain layers, each priced as one piece; with `halves`, those of the parted backward too."""
    layers = len(stage.kinds)
    layer = layer_call(run)
    forward: Calls = (Counted(call=layer, phase="forward", count=layers),)
    backward = _backward(layer, layers, microbatches)
    if run.plan.recompute == "full":
        backward = backward.with_whole(forward)
    if stage.first:
        forward += _embedding_forward(run)
        backward = backward.with_table(_embedding_backward(run, microbatches, shared_table=stage.shared_table))
    if stage.last:
        head = head_call(run)
        forward += (Counted(call=head, phase="forward"),)
        backward = backward.and_(_backward(head, 1, microbatches))
    action = _action(run)
    return ChunkCalls(
        layers=layers,
        forward=plain(forward + action),
        backward=plain(backward.whole + action),
        backward_input=plain(backward.of_input + action) if halves else (),
        backward_weight=plain(backward.of_weight) if halves else (),
        send=send,
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
    calls: Calls = (Counted(call=embedding_call(run), phase="forward"),)
    if not run.model.rope:
        tokens = run.batch.micro * run.batch.seq_len
        add = ResidualAdd(dtype=run.precision, tokens=tokens, hidden=run.model.hidden)
        calls += (Counted(call=_positions(run), phase="forward"), Counted(call=add, phase="forward"))
    return calls


def _embedding_backward(run: TrainingRun, microbatches: int, *, shared_table: bool) -> Calls:
    if shared_table:
        # the head's backward came first and left its gradient in the shared weight
        calls: Calls = (Counted(call=embedding_call(run), phase="backward_accumulate"),)
    else:
        calls = _over_microbatches(embedding_call(run), 1, microbatches)
    if not run.model.rope:
        calls += _over_microbatches(_positions(run), 1, microbatches)
    return calls


def _positions(run: TrainingRun) -> Embedding:
    return Embedding(**{**common_fields(run), "batch": 1}, vocab=run.model.max_positions)


def _action(run: TrainingRun) -> Calls:
    if run.plan.pp == 1:
        return ()
    return (Counted(call=PipelineAction(dtype=run.precision, size_bytes=_activation_bytes(run)), phase="step"),)


def _activation_bytes(run: TrainingRun) -> int:
    """One rank's share of the residual stream."""
    rank = RankShare(run=run)
    return rank.item_bytes * rank.rows * run.model.hidden


def send_calls(run: TrainingRun, placement: Placement, rank: int, chunk: int) -> Calls:
    """What a chunk hands to the next stage, where that is on another rank."""
    holders = placement.holders()
    holder = holders.get((placement.chains[chunk], placement.stages[rank][chunk] + 1))
    if holder is None or holder[0] == rank:
        return ()
    on_a_node = pair_on_a_node(run, rank, holder[0])
    size = _activation_bytes(run)
    if run.plan.tp == 1 or run.plan.sp or run.execution.whole_layers or not run.execution.split_p2p:
        return (Counted(call=SendRecv(size_bytes=size, ranks=2, ranks_per_node=on_a_node), phase="forward"),)
    # each tensor-parallel rank sends a share, and those of the next stage gather it
    share = SendRecv(size_bytes=size // run.plan.tp, ranks=2, ranks_per_node=on_a_node)
    group = group_of(run.plan.tp, 1, run.cluster.gpus_per_node)
    return (Counted(call=share, phase="forward"), *group.all_gather(size))


def pair_on_a_node(run: TrainingRun, rank: int, other: int) -> int:
    """Ranks a node, 2 or 1, of a pair of pipeline ranks: each is a block of tp · cp · dp GPUs, one block after the other,
    and the pair is as slow as its GPUs that are furthest apart."""
    block, per_node = run.plan.tp * run.plan.cp * run.plan.dp, run.cluster.gpus_per_node
    apart = any((rank * block + i) // per_node != (other * block + i) // per_node for i in range(block))
    return 1 if apart else 2
