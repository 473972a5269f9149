"""Outcomes: what the full estimate of a plan says, in the few numbers that plans are ranked by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from predict.plan_search.space.legal import run_of
from predict.run.training_run import TrainingRun
from predict.step.scheduling import Estimate
from sampling.errors import InfeasibleError


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """One plan's step time and memory, or why it has none."""

    number: int
    """The plan's place among the legal ones."""
    step_us: float = 0.0
    memory_bytes: float = 0.0
    """Expected peak per GPU."""
    refusal: str = ""
    """Why the plan cannot run, where only its schedule can tell."""


Batch = Sequence[tuple[int, Mapping[str, Any]]]
"""Numbers of plans, and the settings of each."""


def outcomes(estimate: Estimate, base: TrainingRun, batch: Batch) -> list[Outcome]:
    """The outcome of each plan of a batch, in its order."""
    return [_outcome(estimate, number, run_of(base, settings)) for number, settings in batch]


def _outcome(estimate: Estimate, number: int, run: TrainingRun) -> Outcome:
    try:
        prediction = estimate(run)
    except InfeasibleError as error:
        return Outcome(number=number, refusal=str(error))
    return Outcome(number=number, step_us=prediction.median_us, memory_bytes=prediction.memory.point_bytes)
