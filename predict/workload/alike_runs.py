"""Blocks of runs whose layers do the same, whatever their pipelines, replicas and number of microbatches: made once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Generic, TypeVar

from predict.layers.adapters import trained_in_embedding, trained_in_head, trained_in_layer
from predict.model.spec import LayerKind
from predict.rank.share import RankShare, Weights, embedding_weights, head_weights
from predict.run.plan import Batch, Plan
from predict.run.training_run import TrainingRun
from predict.workload.layer import LayerBlocks, accumulation_block, embedding_blocks, head_blocks, layer_blocks

Made = TypeVar("Made")


class KeptByRun(Generic[Made]):
    """Things made of runs, each found again for an equal run. Where `most` are kept, they are dropped and made anew."""

    def __init__(self, make: Callable[[TrainingRun], Made], most: int) -> None:
        self._make, self._most = make, most
        self._kept: dict[tuple[Plan, Batch, str, float | None], list[tuple[TrainingRun, Made]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._kept.values()))

    def of(self, run: TrainingRun) -> Made:
        key = run.plan, run.batch, run.precision, run.lone_passes
        for known, made in self._kept.get(key, ()):
            if known == run:
                return made
        if len(self) >= self._most:
            self._kept.clear()
        made = self._make(run)
        self._kept.setdefault(key, []).append((run, made))
        return made


DEFAULT = Plan()
OF_PIPELINES: Mapping[str, Any] = {
    name: getattr(DEFAULT, name)
    for name in (
        "pp",
        "vpp",
        "schedule",
        "memory_limit",
        "recompute_method",
        "recompute_layers",
        "layout",
        "first_stage_layers",
        "last_stage_layers",
        "count_embedding",
        "count_loss",
    )
}
"""Settings of a plan that say how layers lie on the pipeline, each at its default."""
OF_REPLICAS: Mapping[str, Any] = {name: getattr(DEFAULT, name) for name in ("dp", "zero", "shard")}
"""Settings of a plan that layers depend on only where something is sharded layer by layer."""
SHARDED_LAYERS = 2
"""ZeRO stage from which on gradients, or weights too, go over the replicas layer by layer."""
MOST_KEPT = 256
"""Runs whose blocks are kept, some 50 kB each: a search has hundreds of plans of one shape of layers."""


@dataclass(frozen=True, kw_only=True, eq=False)
class AlikeBlocks:
    """The blocks of a run in which one microbatch passes through one stage."""

    rank: RankShare
    _layers: dict[LayerKind, LayerBlocks] = field(default_factory=dict)
    _heads: dict[bool, LayerBlocks] = field(default_factory=dict)
    _added_up: dict[tuple[int, int], BlockCache] = field(default_factory=dict)

    def layer(self, kind: LayerKind) -> LayerBlocks:
        if kind not in self._layers:
            self._layers[kind] = layer_blocks(self.rank, kind)
        return self._layers[kind]

    @cached_property
    def embedding(self) -> LayerBlocks:
        return embedding_blocks(self.rank)

    def head(self, *, shares_embedding: bool) -> LayerBlocks:
        if shares_embedding not in self._heads:
            self._heads[shares_embedding] = head_blocks(self.rank, shares_embedding=shares_embedding)
        return self._heads[shares_embedding]

    def adding_up(self, microbatches: int, dp: int) -> BlockCache:
        """The blocks with the accumulation of so many microbatches' gradients, with dp replicas."""
        key = microbatches, dp
        if key not in self._added_up:
            run = self.rank.run
            batch = replace(run.batch, global_=microbatches * run.batch.micro * dp)
            seen = replace(run, plan=replace(run.plan, dp=dp), batch=batch)
            self._added_up[key] = BlockCache(self, RankShare(run=seen))
        return self._added_up[key]


class BlockCache:
    """The blocks that the chunks of a run are made of: layers of a kind share theirs, as do all ranks, and all runs whose layers do
    the same and whose gradients add up alike."""

    def __init__(self, alike: AlikeBlocks, rank: RankShare) -> None:
        self._alike, self.rank = alike, rank
        self._layers: dict[LayerKind, LayerBlocks] = {}
        self._heads: dict[bool, LayerBlocks] = {}
        self._embedding: LayerBlocks | None = None

    def layer(self, kind: LayerKind) -> LayerBlocks:
        if kind not in self._layers:
            self._layers[kind] = self._own(self._alike.layer(kind), trained_in_layer(self.rank.run, kind))
        return self._layers[kind]

    def embedding(self) -> LayerBlocks:
        if self._embedding is None:
            weights = trained_in_embedding(self.rank.run, embedding_weights(self.rank.model, self.rank.plan))
            self._embedding = self._own(self._alike.embedding, weights)
        return self._embedding

    def head(self, *, shares_embedding: bool) -> LayerBlocks:
        if shares_embedding not in self._heads:
            weights = head_weights(self.rank.model, self.rank.plan, shares_embedding=shares_embedding)
            trained = trained_in_head(self.rank.run, weights)
            self._heads[shares_embedding] = self._own(self._alike.head(shares_embedding=shares_embedding), trained)
        return self._heads[shares_embedding]

    def _own(self, blocks: LayerBlocks, weights: Weights) -> LayerBlocks:
        return replace(blocks, accumulation=accumulation_block(self.rank, weights))


_kept = KeptByRun(lambda run: AlikeBlocks(rank=RankShare(run=run)), MOST_KEPT)


def block_cache(run: TrainingRun) -> BlockCache:
    """The blocks of a run, which it shares with others."""
    plan = run.plan
    # gradients that stay whole are added up in one way if they are reduced at the end of the step, in another if not
    replicas = plan.dp if plan.zero >= SHARDED_LAYERS else 1 + bool(plan.zero or plan.dp > 1)
    return _kept.of(as_layers_see(run)).adding_up(run.microbatches, replicas)


def as_layers_see(run: TrainingRun) -> TrainingRun:
    """The run with one microbatch, and without what its layers do not depend on: its blocks are made from this one, so that they
    cannot depend on it. Where microbatches hide each other's exchange, the share of passes with none beside them is all that is left of
    the pipeline."""
    unseen = OF_PIPELINES if run.plan.zero >= SHARDED_LAYERS else {**OF_PIPELINES, **OF_REPLICAS}
    seen, spread = replace(run.plan, **unseen), run.spread and replace(run.spread, **unseen)
    batch = replace(run.batch, global_=run.batch.micro * seen.dp)
    alone = run.lone_share if run.execution.overlap_ep == "microbatch" else None
    return replace(run, name="", plan=seen, spread=spread, batch=batch, order=None, lone_passes=alone)
