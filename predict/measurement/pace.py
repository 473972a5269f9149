"""The pace of this machine beside a measured step, as a share of the pace of its profile's rows, and what it makes of the error.

A step that takes longer than predicted may run on a machine that is slower now than when its rows were taken. The reference calls of
its sessions, timed again beside the step, part the error into that of the pace and that of the models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from predict import estimate
from predict.layers.run_json import dump_run
from predict.measurement.measurement import ReferenceUs
from predict.measurement.requirements import require_measurable
from predict.measurement.worker import run_in_processes
from predict.prices.open import open_prices
from predict.prices.pace import paces_beside, paces_text, reference_us_of
from predict.run.training_run import TrainingRun
from predict.step.prediction import Prediction
from sampling.errors import SamplesError, UserError
from sampling.number_text import signed_percent
from sampling.store.pace import Resource


@dataclass(frozen=True, kw_only=True, slots=True)
class Pace:
    """The pace of the machine at a moment: 0.83 where it takes 1 / 0.83 of the time that it took at the pace of its rows."""

    by_resource: Mapping[Resource, float]
    of_step: float
    """The pace of a run's step, which takes some of each resource."""

    def to_json(self) -> dict[str, Any]:
        return {"of_step": self.of_step, "by_resource": dict(self.by_resource)}

    def __str__(self) -> str:
        return f"this machine now runs at {self.of_step:.2f} of the pace of its rows ({paces_text(self.by_resource)})"

    def parts_of(self, error: float) -> str:
        """The error of a prediction at the pace of the rows, parted into pace and models."""
        of_pace, of_models = signed_percent(self.of_step - 1), signed_percent(self.of_models(error))
        return f"of the error of {signed_percent(error)}, the pace makes {of_pace} and the models {of_models}"

    def of_models(self, error: float) -> float:
        """The error that a prediction at this pace has, where one at the pace of the rows has `error`."""
        return (1 + error) / self.of_step - 1


def pace_beside(prediction: Prediction, reference_us: ReferenceUs) -> Pace | None:
    """The pace while the reference calls took `reference_us`; None where the profile knows no time of theirs."""
    run = prediction.run
    paces = paces_beside(open_prices(run.cluster, run.execution), run.cluster, reference_us)
    return Pace(by_resource=paces, of_step=prediction.median_us / at_pace(run, paces).median_us) if paces else None


def pace_over(prediction: Prediction, references_us: Sequence[ReferenceUs]) -> Pace | None:
    """The median pace over several measurements of one run."""
    found = [pace for each in references_us if (pace := pace_beside(prediction, each))]
    if not found:
        return None
    return Pace(
        by_resource={resource: median(one.by_resource[resource] for one in found) for resource in found[0].by_resource},
        of_step=median(one.of_step for one in found),
    )


def at_pace(run: TrainingRun, paces: Mapping[Resource, float]) -> Prediction:
    """The prediction of a run while the machine runs at these paces."""
    return estimate(run, prices=open_prices(run.cluster, run.execution, paces), require_fit=False)


SECONDS = 4.0
"""Seconds for which the reference calls are timed: eight readings, whose median a burst of load does not move."""


def pace_now(prediction: Prediction, *, timeout_s: float = 120) -> Pace:
    """The pace of this machine now. UserError for a run of another machine, SamplesError where the profile's rows have no pace."""
    run = prediction.run
    if run.cluster.gpu.kind != "cpu":
        raise UserError("--pace now: the pace of a GPU is read only in a sampling session; omit it")
    require_measurable(run, "torch")
    if not reference_us_of(open_prices(run.cluster, run.execution), run.cluster):
        raise SamplesError(
            f"cluster.profile: {run.cluster.profile!r}: --pace now: its rows were sampled without readings of the machine's pace, or on "
            "another machine; run `make sample` and `make train-regressors`"
        )
    reference_us = run_in_processes(
        "pace",
        {"run": dump_run(run), "seconds": SECONDS, "timeout_s": timeout_s},
        name=run.name,
        processes=run.cluster.world_size,
        threads=run.cluster.threads,
        timeout_s=timeout_s,
    )
    pace = pace_beside(prediction, reference_us)
    assert pace is not None
    return pace
