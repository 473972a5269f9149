"""The stages of the model that each pipeline rank holds: where the schedule places them, and the kinds of their layers."""

from __future__ import annotations

from dataclasses import dataclass

from predict.model.layer_kinds import LayerKind
from predict.run.stage_layout import slices, split_layers
from predict.run.training_run import TrainingRun
from predict.schedules.engine.order import Placement


@dataclass(frozen=True, kw_only=True, slots=True)
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


def placement_of(run: TrainingRun) -> Placement:
    """The placement of the stages by the run's schedule, which is a named one and not `best`."""
    return run.schedule.placement(run.plan.pp, run.plan.vpp)


def layers_of_ranks(run: TrainingRun) -> list[int]:
    """The number of layers by pipeline rank. Raises ConfigError where the plan's split of the layers does not fit."""
    placement = placement_of(run)
    shares = split_layers(run.model.layers, placement.depth, run.plan)
    return [sum(shares[number] for number in own) for own in placement.stages]


def stages_of_ranks(run: TrainingRun) -> tuple[tuple[Stage, ...], ...]:
    """The stages by pipeline rank and chunk. Raises ConfigError where the plan's split of the layers does not fit."""
    placement, kinds = placement_of(run), run.model.kinds()
    shares = slices(split_layers(run.model.layers, placement.depth, run.plan))
    last = placement.depth - 1
    return tuple(
        tuple(
            Stage(
                kinds=tuple(kinds[layer] for layer in shares[number]),
                first=number == 0,
                last=number == last,
                shared_table=run.model.tied and {0, last} <= set(own),
                further_embedding=bool(run.model.mtp_layers) and number == last and 0 not in own and not run.model.tied,
            )
            for number in own
        )
        for own in placement.stages
    )
