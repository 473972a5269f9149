"""The calls of one chunk of a pipeline rank for one microbatch: its forward, its backward and its send."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from predict.layers.attention import attended
from predict.model.spec import LayerKind
from predict.rank.blocks import Block, Blocks, Calls, Message, Repeated, plain
from predict.rank.groups import group_of
from predict.rank.share import RankShare
from predict.run.stages import Stage
from predict.run.training_run import TrainingRun
from predict.run.tuning import TEACHER
from predict.run.vision import ALL, NONE
from predict.schedules.engine.order import Placement
from predict.workload.alike_runs import BlockCache, block_cache
from predict.workload.layer import LayerBlocks
from predict.workload.whole_layers import common_fields, embedding_call, head_call, layer_call
from sampling.call import Call, Counted, Phase
from sampling.cells.layer import DenseLayer
from sampling.cells.pipeline_action import PipelineAction
from sampling.collectives.kinds import SendRecv
from sampling.operators.attention import Attention
from sampling.operators.memory_bound import ResidualAdd
from sampling.operators.vocabulary import Embedding

KEPT = 1024
"""Chunks that are kept, some 2 kB each."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChunkCalls:
    """The calls of one chunk, which is a stage of the model.

    The backward is the mean over the microbatches, all but the first of which add to existing gradients. Its halves are empty
    where the schedule does not run them separately. `send` moves an activation to the next stage, or its gradient back.
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


@lru_cache(maxsize=KEPT)
def chunk_of_operators(cache: BlockCache, stage: Stage, send: Calls, again: int, *, halves: bool) -> ChunkCalls:
    """A chunk of layers whose operators are priced one by one; full recomputation runs the first `again` of them once more."""
    outer = _outer(cache, stage)
    seen, trained = _tower_units(cache.rank.run) if stage.first else ([], [])
    units = [*trained, *_units(cache, stage)]

    def blocks(half: str) -> Blocks:
        return tuple(Repeated(block=getattr(of, half), count=many) for of, many in units)

    added = tuple(each for each in blocks("accumulation") if each.block.calls)
    repeated = (
        *_repeated_forward(cache, stage.kinds[:again]),
        *(_repeated_tower(cache.rank.run) if stage.first else ()),
        *_repeated_ends(cache, outer),
    )
    return ChunkCalls(
        layers=len(stage.kinds),
        forward=(
            *(Repeated(block=of.forward, count=many) for of, many in seen),
            *blocks("forward"),
            *_without_gradient(cache, stage),
        ),
        backward=(*repeated, *blocks("backward"), *added),
        backward_input=(*repeated, *blocks("backward_input")) if halves else (),
        backward_weight=(*blocks("backward_weight"), *added) if halves else (),
        send=send,
    )


def _outer(cache: BlockCache, stage: Stage) -> list[LayerBlocks]:
    """Embedding and head, those of them that a stage has."""
    outer = [cache.embedding()] if stage.first else []
    return [*outer, cache.head(shares_embedding=stage.shared_table)] if stage.last else outer


def _units(cache: BlockCache, stage: Stage) -> list[tuple[LayerBlocks, int]]:
    """The layers of a stage by kind, embedding and head, each with how many there are."""
    layers = [(cache.layer(kind), many) for kind, many in stage.counts.items()]
    return [*layers, *((blocks_of, 1) for blocks_of in _outer(cache, stage))]


VISION, ENCODER = "vision_tower", "encoder"
"""Headings of the work of a vision tower and its projectors, and of an encoder."""


def _tower_units(run: TrainingRun) -> tuple[list[tuple[LayerBlocks, int]], list[tuple[LayerBlocks, int]]]:
    """The vision tower's layers and ends, each with how many there are: those that run forward alone, and those that are trained."""
    tower, projector = run.tower, run.projector
    if tower is None or projector is None:
        return [], []
    cache = block_cache(tower)
    layers = [(cache.layer(kind), many) for kind, many in tower.model.kind_counts().items()]
    heading = ENCODER if run.model.is_encoder_decoder else VISION
    before = [(blocks_of.under(heading), many) for blocks_of, many in ((cache.embedding(), 1), *layers)]
    after = [(block_cache(projector).head(shares_embedding=False).under(heading), 1)]
    trained = run.vision.trained
    return (
        before * (trained != ALL) + after * (trained == NONE),
        before * (trained == ALL) + after * (trained != NONE),
    )


def _repeated_tower(run: TrainingRun) -> Blocks:
    """The forwards of a trained tower's layers that full recomputation repeats."""
    if run.tower is None or run.vision.trained != ALL:
        return ()
    kinds = run.tower.model.kinds()
    return _repeated_forward(block_cache(run.tower), kinds[: run.plan.fully_recomputed(len(kinds))])


def _tower_forwards(run: TrainingRun, stage: Stage) -> list[tuple[LayerBlocks, int]]:
    """The units of the vision tower that a pass without a gradient runs, trained or not."""
    seen, trained = _tower_units(run) if stage.first else ([], [])
    return [*seen, *trained]


def _without_gradient(cache: BlockCache, stage: Stage) -> Blocks:
    """The forwards of passes beside the one that trains: a reference's over the same stage, a teacher's over all of its layers."""
    run = cache.rank.run
    found: list[tuple[str, Block, float]] = []
    if own := run.tuning.own_passes:
        alone = run.without_backward
        own_cache = cache if alone is run else block_cache(alone)
        units = [*_tower_forwards(alone, stage), *_units(own_cache, stage)]
        found += [(heading, of.forward, passes * many) for heading, passes in own.items() for of, many in units]
    if teacher := run.taught_by:
        taught = block_cache(teacher)
        found += [(TEACHER, taught.layer(kind).forward, many) for kind, many in teacher.model.kind_counts().items()]
        ends = (taught.embedding(), taught.head(shares_embedding=teacher.model.tied))
        found += [(TEACHER, of_end.forward, 1.0) for of_end in ends]
        found += [(TEACHER, of.forward, many) for of, many in _tower_forwards(teacher, stage)]
    return tuple(Repeated(block=replace(block, heading=heading), count=many) for heading, block, many in found)


def _repeated_forward(cache: BlockCache, kinds: tuple[LayerKind, ...]) -> Blocks:
    """The forwards of layers that full recomputation repeats."""
    return tuple(Repeated(block=cache.layer(kind).again, count=many) for kind, many in Counter(kinds).items())


def _repeated_ends(cache: BlockCache, ends: Iterable[LayerBlocks]) -> Blocks:
    """The forwards of embedding and head where full recomputation repeats them too."""
    run = cache.rank.run
    if run.plan.recompute != "full" or not run.execution.recompute_ends:
        return ()
    return tuple(Repeated(block=of_end.again, count=1) for of_end in ends)


# Sends between pipeline ranks, and whether a pair of ranks shares a node.

MOST_SENDS_KEPT = 128
"""Placements whose senders and receivers are kept, and messages that are kept."""
PIPELINE = "pp"
"""Name of the group of pipeline ranks, two of which exchange a message."""


def activation_bytes(run: TrainingRun) -> int:
    """Bytes of one rank's share of the residual stream."""
    rank = RankShare(run=run)
    return rank.item_bytes * rank.rows * run.model.hidden


def sends_of_ranks(run: TrainingRun, placement: Placement) -> list[tuple[Calls, ...]]:
    """The sends of results to the next stage, by rank and chunk; () where that is on the same rank. Equal ones are one object."""
    pairs = _pairs(placement, _block(run), run.cluster.gpus_per_node)
    calls = {on_a_node: _send_calls(run, on_a_node) if on_a_node else () for on_a_node in set().union(*pairs)}
    return [tuple([calls[on_a_node] for on_a_node in of_rank]) for of_rank in pairs]


@lru_cache(maxsize=MOST_SENDS_KEPT)
def _pairs(placement: Placement, block: int, per_node: int) -> tuple[tuple[int, ...], ...]:
    """Ranks per node of the pair over which each chunk sends, by rank and chunk; 0 where it sends to no other rank."""
    holders = placement.holders()

    def pair(rank: int, chain: int, stage: int) -> int:
        holder = holders.get((chain, stage + 1))
        return 0 if holder is None or holder[0] == rank else _on_a_node(rank, holder[0], block, per_node)

    return tuple(
        tuple(pair(rank, chain, stage) for chain, stage in zip(placement.chains, stages, strict=True))
        for rank, stages in enumerate(placement.stages)
    )


def _send_calls(run: TrainingRun, on_a_node: int) -> Calls:
    """The send of an activation to a rank with which `on_a_node` of the pair are on one node."""
    whole = run.plan.tp == 1 or run.plan.sp or run.execution.whole_layers or not run.execution.split_p2p
    return _send(activation_bytes(run), 1 if whole else run.plan.tp, on_a_node, run.cluster.gpus_per_node)


@lru_cache(maxsize=MOST_SENDS_KEPT)
def _send(size_bytes: int, parts: int, on_a_node: int, per_node: int) -> Calls:
    """The send by `parts` tensor-parallel ranks: each sends its part, and the ranks of the next stage gather them."""
    part = SendRecv(size_bytes=size_bytes // parts, ranks=2, ranks_per_node=on_a_node)
    gathered = group_of("tp", parts, 1, per_node).all_gather(size_bytes)
    return (Message(call=part, phase="forward", group=PIPELINE), *gathered)


def pair_on_a_node(run: TrainingRun, rank: int, other: int) -> int:
    """Ranks per node, 2 or 1, of a pair of pipeline ranks. Each is a block of tp · cp · dp GPUs, one block after the other, and
    the pair is as slow as those of its GPUs that are furthest apart."""
    return _on_a_node(rank, other, _block(run), run.cluster.gpus_per_node)


def _block(run: TrainingRun) -> int:
    """GPUs of a pipeline rank."""
    return run.plan.tp * run.plan.cp * run.plan.dp


def _on_a_node(rank: int, other: int, block: int, per_node: int) -> int:
    apart = any((rank * block + i) // per_node != (other * block + i) // per_node for i in range(block))
    return 1 if apart else 2


# The calls of a chunk whose layers are timed and priced in one piece each, as those of plain torch are.


def chunk_of_whole_layers(
    run: TrainingRun, stage: Stage, send: Calls, *, microbatches: int, halves: bool
) -> ChunkCalls:
    """A chunk of plain layers, each priced as one piece; with `halves`, those of the parted backward too."""
    layers = len(stage.kinds)
    layer = layer_call(run)
    forward: Calls = (
        Counted(call=layer, phase="forward", count=layers),
        *_real_attention(run, layer, layers, "forward"),
    )
    backward = _backward(layer, layers, microbatches).with_inputs(_real_attention(run, layer, layers, "backward"))
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


class _Backward(NamedTuple):
    """The calls of a backward, whole and in its halves."""

    whole: Calls
    of_input: Calls
    of_weight: Calls

    def and_(self, other: _Backward) -> _Backward:
        return _Backward(self.whole + other.whole, self.of_input + other.of_input, self.of_weight + other.of_weight)

    def with_inputs(self, calls: Calls) -> _Backward:
        """Backward blocks with calls that have no weights."""
        return _Backward(self.whole + calls, self.of_input + calls, self.of_weight)

    def with_whole(self, calls: Calls) -> _Backward:
        return _Backward(self.whole + calls, self.of_input, self.of_weight)

    def with_table(self, calls: Calls) -> _Backward:
        """Backward blocks including the embedding's, which is the weight's alone: its input has no gradient."""
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


def _real_attention(run: TrainingRun, layer: DenseLayer, layers: int, phase: Phase) -> Calls:
    """Attention of the real sequences in place of the attention of whole rows, which is a part of the layers; () where rows are whole."""
    if not run.attended:
        return ()
    whole = next(call for call, _ in layer.attention_calls() if isinstance(call, Attention))
    return (
        Counted(call=whole, phase=phase, count=-layers),
        *(Counted(call=call, phase=phase, count=layers * share) for call, share in attended(run, whole)),
    )


def _embedding_forward(run: TrainingRun) -> Calls:
    calls: Calls = (Counted(call=embedding_call(run), phase="forward"),)
    if run.model.learns_positions:
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
    if run.model.learns_positions:
        calls += _over_microbatches(_positions(run), 1, microbatches)
    return calls


def _positions(run: TrainingRun) -> Embedding:
    return Embedding(**{**common_fields(run), "batch": 1}, vocab=run.model.max_positions)


def _action(run: TrainingRun) -> Calls:
    if run.plan.pp == 1:
        return ()
    return (Counted(call=PipelineAction(dtype=run.precision, size_bytes=activation_bytes(run)), phase="step"),)
