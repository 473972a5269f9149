"""Bytes of a model's units (a layer of each kind, embedding, head) on one rank, for many plans at once.

They are those of the estimate itself: weights, gradients and optimizer state by how the state is sharded, activations by how a
microbatch is spread and recomputed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from predict.memory.chunk_memory import ChunkCounter, UnitMemory
from predict.memory.profiles import memory_profile_of
from predict.memory.state import state_of_unit
from predict.memory.units import Unit, embedding_unit, head_units, layer_unit
from predict.model.spec import LayerKind
from predict.plan_search.floors.structures import kinds_of
from predict.plan_search.space.distinct import Indices, distinct
from predict.plan_search.space.legal import Space
from predict.rank.groups import groups_of
from predict.run.training_run import TrainingRun
from regressors.features.arrays import Floats

STATE = ("plan.tp", "plan.cp", "plan.dp", "plan.ep", "plan.etp", "plan.zero", "plan.shard")
"""Keys that decide the state, beside all of execution."""
ACTIVATIONS = (
    "plan.tp", "plan.sp", "plan.cp", "plan.cp_method", "plan.ep", "plan.etp", "plan.recompute", "plan.recompute_modules",
    "plan.recompute_method", "batch.micro", "batch.seq_len",
)  # fmt: skip
"""Keys that decide the activations, beside all of execution."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class UnitBytes:
    """Bytes by distinct set and unit, shape (sets, kinds + 2): last the embedding and the head; and the set of each plan."""

    bytes: Floats
    of_row: Indices


def state_bytes(space: Space) -> UnitBytes:
    """Weights, optimizer state and the gradients that exist throughout the step."""
    return _of_sets(space, STATE, _state)


def kept_bytes(space: Space) -> UnitBytes:
    """Activations that one microbatch leaves in a unit until its backward."""
    return _of_sets(space, ACTIVATIONS, _kept)


def _of_sets(
    space: Space, paths: Sequence[str], of: Callable[[TrainingRun, Sequence[LayerKind]], list[float]]
) -> UnitBytes:
    execution = [axis.path for axis in space.question.axes if axis.section == "execution"]
    first, of_row = distinct(space.indices((*paths, *execution)), len(space.rows))
    kinds = kinds_of(space)
    found = np.array([of(space.run(row), kinds) for row in first.tolist()])
    return UnitBytes(bytes=found.reshape(len(first), len(kinds) + 2), of_row=of_row)


def _state(run: TrainingRun, kinds: Sequence[LayerKind]) -> list[float]:
    profile, groups = memory_profile_of(run), groups_of(run)

    def of(unit: Unit) -> float:
        state = state_of_unit(run, profile, unit, groups)
        return state.parameters + state.optimizer + (state.gradients if profile.gradient_buffers else 0.0)

    return [sum(map(of, units)) for units in _units(run, kinds)]


def _kept(run: TrainingRun, kinds: Sequence[LayerKind]) -> list[float]:
    counter = ChunkCounter(run, memory_profile_of(run))

    def of(unit: UnitMemory) -> float:
        return unit.activations.kept_without_rotary_bytes

    return [sum(of(counter.unit(unit)) for unit in units) for units in _units(run, kinds)]


def _units(run: TrainingRun, kinds: Sequence[LayerKind]) -> Iterator[Sequence[Unit]]:
    """A layer of each kind, the embedding, and the head with what follows it; the smaller head where a model ties its tables."""
    for kind in kinds:
        yield [layer_unit(run, kind)]
    yield [embedding_unit(run)]
    yield head_units(run, shares_embedding=run.model.tied, has_embedding=True)
