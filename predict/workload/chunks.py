"""The calls of one chunk of a pipeline rank for one microbatch: its forward, its backward and its send."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from predict.model.layer_kinds import LayerKind
from predict.run.stages import Stage
from predict.run.training_run import TrainingRun
from predict.workload.alike_runs import blocks_of_alike_runs
from predict.workload.layers.layer import LayerBlocks, accumulation_block
from predict.workload.rank.blocks import Block, Blocks, Calls, Repeated
from predict.workload.rank.share import RankShare
from predict.workload.rank.weights import Weights, embedding_weights, head_weights, layer_weights


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


class BlockCache:
    """The blocks that the chunks of a run are made of: layers of a kind share theirs, as do all ranks, and all but the
    accumulation of gradients is that of every run whose layers do the same."""

    def __init__(self, run: TrainingRun) -> None:
        self._rank = RankShare(run=run)
        self._alike = blocks_of_alike_runs(run)
        self._layers: dict[LayerKind, LayerBlocks] = {}
        self._heads: dict[bool, LayerBlocks] = {}
        self._embedding: LayerBlocks | None = None

    def layer(self, kind: LayerKind) -> LayerBlocks:
        if kind not in self._layers:
            weights = layer_weights(self._rank.model, self._rank.plan, kind)
            self._layers[kind] = self._own(self._alike.layer(kind), weights)
        return self._layers[kind]

    def embedding(self) -> LayerBlocks:
        if self._embedding is None:
            self._embedding = self._own(self._alike.embedding, embedding_weights(self._rank.model, self._rank.plan))
        return self._embedding

    def head(self, *, shares_embedding: bool) -> LayerBlocks:
        if shares_embedding not in self._heads:
            weights = head_weights(self._rank.model, self._rank.plan, shares_embedding=shares_embedding)
            self._heads[shares_embedding] = self._own(self._alike.head(shares_embedding=shares_embedding), weights)
        return self._heads[shares_embedding]

    def _own(self, blocks: LayerBlocks, weights: Weights) -> LayerBlocks:
        return replace(blocks, accumulation=accumulation_block(self._rank, weights))


def chunk_of_operators(run: TrainingRun, cache: BlockCache, stage: Stage, send: Calls, *, halves: bool) -> ChunkCalls:
    """A chunk of layers whose operators are priced one by one."""
    count = {kind: stage.kinds.count(kind) for kind in dict.fromkeys(stage.kinds)}
    layers = [(cache.layer(kind), many) for kind, many in count.items()]
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
            *_repeated_forward(run, cache, stage.kinds),
            *_repeated_ends(run, outer),
            *blocks("backward"),
            *added,
        ),
        backward_input=blocks("backward_input") if halves else (),
        backward_weight=(*blocks("backward_weight"), *added) if halves else (),
        send=send,
    )


def _repeated_forward(run: TrainingRun, cache: BlockCache, kinds: tuple[LayerKind, ...]) -> Blocks:
    """The forwards that full recomputation repeats: of all layers, or of the first ones of the chunk."""
    chosen = kinds[: run.plan.fully_recomputed(len(kinds))]
    return tuple(Repeated(block=cache.layer(kind).again, count=chosen.count(kind)) for kind in dict.fromkeys(chosen))


def _repeated_ends(run: TrainingRun, ends: Iterable[LayerBlocks]) -> Blocks:
    """The forwards of embedding and head where full recomputation repeats them too."""
    if run.plan.recompute != "full" or not run.execution.recompute_ends:
        return ()
    return tuple(Repeated(block=of_end.again, count=1) for of_end in ends)
