"""The stages of the model that each pipeline rank holds: where the schedule places them, and the kinds of their layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from predict.model.spec import LayerKind, ModelSpec
from predict.run.stage_layout import slices, split_layers
from predict.run.training_run import TrainingRun
from predict.schedules.engine.order import Placement

KEPT = 128
"""Pipelines of which the stages are kept."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """The layers of one chunk of a pipeline rank."""

    kinds: tuple[LayerKind, ...]
    """Kinds of its layers, first to last."""
    first: bool
    """It starts with the embedding."""
    last: bool
    """It ends with the head."""
    shared_table: bool
    """The rank holds both embedding and head, and they share one table."""
    further_embedding: bool = False
    """Further predicted tokens need a copy of the embedding here, which no other stage of the rank holds."""

    def __hash__(self) -> int:
        """A hash of what is short: stages are looked up for every plan, and most are found as the object itself."""
        return hash((len(self.kinds), self.first, self.last, self.shared_table))

    @cached_property
    def counts(self) -> Mapping[LayerKind, int]:
        """The number of its layers of each kind, in the order of the first of each."""
        return Counter(self.kinds)


def placement_of(run: TrainingRun) -> Placement:
    """The placement of the stages by the run's schedule, which is a named one and not `best`."""
    return run.schedule.placement(run.plan.pp, run.plan.vpp)


def layers_of_ranks(run: TrainingRun) -> tuple[int, ...]:
    """The number of layers by pipeline rank. Raises ConfigError where the plan's split of the layers does not fit."""
    placement = placement_of(run)
    return _sums_of_ranks(placement, split_layers(run.model.layers, placement.depth, run.plan))


@lru_cache(maxsize=KEPT)
def _sums_of_ranks(placement: Placement, layers: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sum(layers[number] for number in own) for own in placement.stages)


def stages_of_ranks(run: TrainingRun) -> tuple[tuple[Stage, ...], ...]:
    """The stages by pipeline rank and chunk; equal ones are one object. Raises ConfigError where the plan's split of the layers does not fit."""
    placement = placement_of(run)
    return _stages(run.model, placement, split_layers(run.model.layers, placement.depth, run.plan))


@lru_cache(maxsize=KEPT)
def _stages(model: ModelSpec, placement: Placement, layers: tuple[int, ...]) -> tuple[tuple[Stage, ...], ...]:
    """The stages of a model of which each holds so many layers."""
    kinds, shares = model.kinds(), slices(layers)
    last, tied, further = placement.depth - 1, model.tied, bool(model.mtp_layers)
    codes = {kind: code for code, kind in enumerate(dict.fromkeys(kinds))}
    coded = [codes[kind] for kind in kinds]
    made: dict[tuple[Any, ...], Stage] = {}

    def stage(number: int, own: tuple[int, ...]) -> Stage:
        layers = shares[number]
        ends = number == 0, number == last, tied and 0 in own and last in own
        further_embedding = further and number == last and 0 not in own and not tied
        key = (*ends, further_embedding, *coded[layers.start : layers.stop])
        if key not in made:
            made[key] = Stage(
                kinds=kinds[layers.start : layers.stop],
                first=ends[0],
                last=ends[1],
                shared_table=ends[2],
                further_embedding=further_embedding,
            )
        return made[key]

    return tuple(tuple(stage(number, own) for number in own) for own in placement.stages)
