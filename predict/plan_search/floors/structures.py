"""Structures: how the layers of a model lie on the chunks of the pipeline ranks, which many plans share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from predict.model.spec import LayerKind
from predict.plan_search.space.distinct import Indices, distinct
from predict.plan_search.space.legal import Space
from predict.run.stages import Stage, placement_of, stages_of_ranks
from predict.run.training_run import TrainingRun
from regressors.features.arrays import Floats

KEYS = (
    "plan.pp", "plan.vpp", "plan.schedule", "plan.layout", "plan.first_stage_layers", "plan.last_stage_layers",
    "plan.count_embedding", "plan.count_loss", "plan.recompute", "plan.recompute_method", "plan.recompute_layers",
)  # fmt: skip
"""The keys that decide the structure."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Structure:
    """Counts of a model's units (a layer of each kind, embedding, head) by pipeline rank and chunk, shape (ranks, chunks, units)."""

    run: TrainingRun
    """One of the plans that have it."""
    units: Floats
    repeated: Floats
    """Those whose forward full recomputation runs again."""
    before: Floats
    """Units of the stages before the rank's earliest one, by copy of the model, shape (copies, ranks, units)."""
    repeated_before: Floats
    """Those of them whose forward is run again."""

    @property
    def copies(self) -> int:
        return len(self.before)

    @property
    def splits_backward(self) -> bool:
        return self.run.schedule.splits_backward


def kinds_of(space: Space) -> tuple[LayerKind, ...]:
    return tuple(dict.fromkeys(space.question.base.model.kinds()))


def structures(space: Space) -> Iterator[tuple[Structure, Indices]]:
    """Each structure of the legal plans, and the rows that have it."""
    kinds = kinds_of(space)
    first, inverse = distinct(space.indices(KEYS), len(space.rows))
    order = np.argsort(inverse, kind="stable")
    edges = np.searchsorted(inverse[order], np.arange(len(first) + 1))
    for number, row in enumerate(first.tolist()):
        yield _structure(space.run(row), kinds), order[edges[number] : edges[number + 1]]


def _structure(run: TrainingRun, kinds: tuple[LayerKind, ...]) -> Structure:
    placement, ranks = placement_of(run), stages_of_ranks(run)

    def counts(stage: Stage) -> list[float]:
        return [*(float(stage.kinds.count(kind)) for kind in kinds), float(stage.first), float(stage.last)]

    def repeats(stage: Stage) -> list[float]:
        again = stage.kinds[: run.plan.fully_recomputed(len(stage.kinds))]
        return [*(float(again.count(kind)) for kind in kinds), 0.0, 0.0]

    units, repeated = (np.array([[of(stage) for stage in stages] for stages in ranks]) for of in (counts, repeats))
    stage, chain = np.array(placement.stages), np.array(placement.chains)
    return Structure(
        run=run,
        units=units,
        repeated=repeated,
        before=_before(units, stage, chain),
        repeated_before=_before(repeated, stage, chain),
    )


def _before(counts: Floats, stage: Indices, chain: Indices) -> Floats:
    """Counts of the stages before each rank's earliest stage of each copy, from those by rank and chunk."""
    found = []
    for copy in range(int(chain.max()) + 1):
        own = chain == copy
        stages = stage[:, own]
        in_order = np.zeros((stages.size, counts.shape[2]))
        in_order[stages.ravel()] = counts[:, own].reshape(-1, counts.shape[2])
        found.append((np.cumsum(in_order, axis=0) - in_order)[stages.min(axis=1)])
    return np.array(found)
