"""The calls of one chunk of a pipeline rank for one microbatch: its forward, its backward and its send."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from predict.model.spec import LayerKind
from predict.rank.blocks import Block, Blocks, Calls, Message, Repeated
from predict.rank.groups import group_of
from predict.rank.share import RankShare
from predict.run.stages import Stage
from predict.run.training_run import TrainingRun
from predict.schedules.engine.order import Placement
from predict.workload.alike_runs import BlockCache
from predict.workload.layer import LayerBlocks
from sampling.collectives.kinds import SendRecv

KEPT = 1024
"""Chunks that are kept, some 2 kB each."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChunkCalls:
    """The calls of one chunk, which is a stage of the model.

    The backward is the mean over the microbatches, of which all but the first add to existing gradients. Its halves are empty
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
    layers = [(cache.layer(kind), many) for kind, many in stage.counts.items()]
    outer = [cache.embedding()] if stage.first else []
    if stage.last:
        outer.append(cache.head(shares_embedding=stage.shared_table))
    units = [*layers, *((blocks_of, 1) for blocks_of in outer)]

    def blocks(half: str) -> Blocks:
        return tuple(Repeated(block=getattr(of, half), count=many) for of, many in units)

    added = tuple(repeated for repeated in blocks("accumulation") if repeated.block.calls)
    return ChunkCalls(
        layers=len(stage.kinds),
        forward=blocks("forward"),
        backward=(
            *_repeated_forward(cache, stage.kinds[:again]),
            *_repeated_ends(cache, outer),
            *blocks("backward"),
            *added,
        ),
        backward_input=blocks("backward_input") if halves else (),
        backward_weight=(*blocks("backward_weight"), *added) if halves else (),
        send=send,
    )


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
"""Placements of which it is kept who sends to whom, and messages that are."""
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
    """The send by `parts` tensor-parallel ranks, each of which sends its part, and those of the next stage gather them."""
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
