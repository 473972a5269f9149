"""Blocks of runs whose layers do the same, whatever their pipelines, replicas and number of microbatches: made once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

from predict.model.layer_kinds import LayerKind
from predict.run.plan import Batch, Plan
from predict.run.training_run import TrainingRun
from predict.workload.layers.embedding_and_head import embedding_blocks, head_blocks
from predict.workload.layers.layer import LayerBlocks, layer_blocks
from predict.workload.rank.share import RankShare

DEFAULT = Plan()
MOST_KEPT = 256
"""Runs whose blocks are kept, some 50 kB each: a search has hundreds of plans of one shape of layers."""


@dataclass(frozen=True, kw_only=True, eq=False)
class AlikeBlocks:
    """The blocks of a run in which one microbatch passes through one stage."""

    rank: RankShare
    _layers: dict[LayerKind, LayerBlocks] = field(default_factory=dict)
    _heads: dict[bool, LayerBlocks] = field(default_factory=dict)

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


_Key = tuple[Plan, Batch, str]
_kept: dict[_Key, list[AlikeBlocks]] = {}


def blocks_of_alike_runs(run: TrainingRun) -> AlikeBlocks:
    """The blocks that a run shares with others. Where many are kept, they are dropped and made anew."""
    alike = as_layers_see(run)
    kept = _kept.setdefault((alike.plan, alike.batch, alike.precision), [])
    for known in kept:
        if known.rank.run == alike:
            return known
    if sum(map(len, _kept.values())) >= MOST_KEPT:
        _kept.clear()
        kept = _kept.setdefault((alike.plan, alike.batch, alike.precision), [])
    kept.append(AlikeBlocks(rank=RankShare(run=alike)))
    return kept[-1]


def as_layers_see(run: TrainingRun) -> TrainingRun:
    """The run with one microbatch, and without what its layers do not depend on: its blocks are made from this one, so that they
    cannot depend on it."""
    seen = replace(
        run.plan,
        pp=1,
        vpp=1,
        schedule=DEFAULT.schedule,
        memory_limit=0,
        recompute_method=DEFAULT.recompute_method,
        recompute_layers=DEFAULT.recompute_layers,
        layout="",
        first_stage_layers=0,
        last_stage_layers=0,
        count_embedding=0,
        count_loss=0,
    )
    if run.plan.zero < 2:  # from 2 on, gradients or weights too go over the replicas layer by layer
        seen = replace(seen, dp=1, zero=0, shard=0)
    batch = replace(run.batch, global_=run.batch.micro * seen.dp)
    return replace(run, name="", plan=seen, batch=batch, order=None)
