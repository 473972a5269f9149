"""Every published row predicted, beside its measurement."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from predict import estimate
from predict.interval import Interval
from predict.prices.published_constants import UNSTATED_RECIPE
from predict.run.calibration_file import calibrated
from predict.run.calibration_terms import Posterior
from predict.run.model_flops import mfu
from predict.run.training_run import TrainingRun
from predict.step.prediction import Prediction
from predict.unknown_settings import LikelySteps
from predict.validation.published.completeness import completeness
from predict.validation.published.row import NotExpressibleError, PublishedRow
from predict.validation.published.runs import candidates
from sampling.errors import InfeasibleError
from sampling.progress import Progress

MIXTURE = "MoE"


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """A row beside its prediction, or the reason why there is none. `kind` is dense or MoE; `error` is predicted over measured,
    less 1; times are µs."""

    row: PublishedRow
    why: str
    measured_us: float
    kind: str = ""
    predicted: Interval | None = None
    sources: dict[str, float] | None = None
    at_peak_us: float = math.nan
    """Time of the model's FLOPs at the peak of all GPUs: over the measured time, the measured MFU."""
    repeats: tuple[str, ...] = ()
    """Ids of the rows that the measurement is the median of, if it is of several."""

    @property
    def error(self) -> float:
        assert self.predicted is not None
        return self.predicted.median_us / self.measured_us - 1

    @property
    def covered(self) -> bool:
        assert self.predicted is not None
        return self.predicted.covers(self.measured_us)

    @property
    def log_half_width(self) -> float:
        """Half of the 90 % interval's width in log time: 0.1 is about ±10 %."""
        assert self.predicted is not None
        return self.predicted.half_width_log

    @property
    def judged_as(self) -> str:
        """The class that the row is judged in: its kind, and how much of the run it states."""
        return f"{self.kind}, {completeness(self.row, sparse=self.kind == MIXTURE)}"


def compare(
    rows: Sequence[PublishedRow],
    *,
    profile: str = "",
    calibration: Posterior | None = None,
    progress: Progress = lambda done, total, name: None,
) -> list[Comparison]:
    """Predict every row, with the samples of `profile` and the terms of `calibration` where they are named."""
    comparisons = []
    for done, row in enumerate(rows, 1):
        comparisons.append(_compare_one(row, profile, calibration))
        progress(done, len(rows), row.row_id)
    return comparisons


def _compare_one(row: PublishedRow, profile: str, calibration: Posterior | None) -> Comparison:
    try:
        found = candidates(row, profile)
        runs = [calibrated(run, calibration) if calibration else run for run in found.runs]
        likely = LikelySteps(
            predictions=tuple(map(estimate, runs)), unknown=found.unknown, unstated=unstated_recipe(runs)
        )
    except (NotExpressibleError, InfeasibleError) as error:
        return Comparison(row=row, why=str(error), measured_us=row.measured_us or math.nan)
    return Comparison(
        row=row,
        measured_us=row.measured_us or math.nan,
        why="; ".join(found.assumed),
        kind=MIXTURE if runs[0].model.experts else "dense",
        predicted=likely.step_time,
        sources=_mean_sources(likely.predictions),
        at_peak_us=mfu(runs[0], 1.0),
    )


def unstated_recipe(runs: Sequence[TrainingRun]) -> float:
    """Half-width in log time that the recipe of a mixture adds where a row leaves it open, so that several runs stand for it."""
    return UNSTATED_RECIPE.value if len(runs) > 1 and runs[0].model.experts else 0.0


def _mean_sources(estimates: Sequence[Prediction]) -> dict[str, float]:
    return {name: fmean(one.sources[name] for one in estimates) for name in estimates[0].sources}
