"""Memory of each pipeline rank over a step, action by action, in the terms of its peak."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from predict.memory.estimate import MemoryModel
from predict.memory.peak import trace
from predict.run.training_run import TrainingRun
from predict.schedules.engine.timeline import Timeline
from regressors.features.arrays import Floats

STACKED_TERMS = ("device", "slack", "buffers", "parameters", "optimizer", "gradients", "activations", "working")
"""The terms from bottom to top: first what exists throughout the step, last what comes and goes."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RankTimeline:
    """Bytes by term in consecutive spans of one rank's step: before the first action, during and between actions, and last in
    the optimizer's step."""

    rank: int
    start_us: Floats
    end_us: Floats
    terms: dict[str, Floats]

    @property
    def total(self) -> Floats:
        total: Floats = np.sum(list(self.terms.values()), axis=0)
        return total


def memory_timeline(run: TrainingRun, timeline: Timeline, step_us: float) -> tuple[RankTimeline, ...]:
    """The pipeline ranks through a step of `step_us` whose pipeline has this timeline. The highest point of each is its peak."""
    model = MemoryModel(run)
    return tuple(_rank_timeline(model, timeline, step_us, rank) for rank in range(run.plan.pp))


def _rank_timeline(model: MemoryModel, timeline: Timeline, step_us: float, rank: int) -> RankTimeline:
    row = timeline.order.rows[rank]
    actions = trace(row, model.chunks[rank], model.run.schedule.released_by_b)
    baseline = model.baseline(rank)
    none = np.zeros(len(row))
    activations = _spans(0.0, actions.activations, actions.activations_after, 0.0)
    gradients = _spans(0.0, actions.gradients, actions.gradients_after, baseline.late_gradients)
    working = _spans(0.0, actions.working, none, baseline.update_working)
    start, end = timeline.start[rank], timeline.end[rank]
    edges = np.concatenate([[0.0], np.stack([start, end], axis=1).ravel(), [max(step_us, end[-1])]])
    # the optimizer's step follows the last action at once
    chosen = np.arange(len(activations)) != 2 * len(row)
    activations, gradients, working = (each[chosen] for each in (activations, gradients, working))
    allocated = baseline.allocated + activations + gradients + working
    constant = np.ones(len(allocated))
    terms = {
        "device": constant * baseline.device_bytes,
        "slack": baseline.slack_share * allocated,
        "buffers": constant * baseline.buffer_bytes,
        "parameters": constant * baseline.state.parameters,
        "optimizer": constant * baseline.state.optimizer,
        "gradients": baseline.resident_gradients + gradients,
        "activations": activations,
        "working": working,
    }
    return RankTimeline(rank=rank, start_us=edges[:-1], end_us=edges[1:], terms=terms)


def _spans(first: float, during: Floats, after: Floats, last: float) -> Floats:
    """Values before the actions, during and after each, and in the optimizer's step."""
    return np.concatenate([[first], np.stack([during, after], axis=1).ravel(), [last]])
