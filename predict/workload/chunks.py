"""The calls of one chunk of a pipeline rank for one microbatch: its forward, its backward and its send."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from predict.model.spec import LayerKind
from predict.rank.blocks import Block, Blocks, Calls, Repeated
from predict.run.stages import Stage
from predict.workload.alike_runs import BlockCache
from predict.workload.layer import LayerBlocks

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
