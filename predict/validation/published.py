"""Published, measured training runs held against predictions: `predict validate published`."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median

from predict import estimate
from predict.interval import Interval
from predict.measured_runs.calibrate import spread_evenly
from predict.measured_runs.fit_terms import MeasuredRun, fit, posterior_of
from predict.plan_search.unknown_settings import LikelySteps
from predict.prices.published_constants import UNSTATED_RECIPE
from predict.prices.sample_provenance import require_known
from predict.run.calibration_file import calibrated, calibration_text, read_calibration
from predict.run.calibration_terms import Posterior
from predict.run.model_flops import mfu
from predict.run.training_run import TrainingRun
from predict.step.prediction import Prediction
from predict.validation.published_row import NotExpressibleError, PublishedRow, read_rows
from predict.validation.published_runs import candidates
from predict.validation.published_software import completeness
from sampling.errors import InfeasibleError, SamplesError, UserError
from sampling.files.disk import naming_the_disk, require_place, write_atomically
from sampling.files.places import SHIPPED_DATA
from sampling.progress import Progress, progress_display

# Every published row predicted, beside its measurement.

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


# Repeats of one configuration, which count once: by the median of their measurements.

NAMED = ("dup_group", "mbs", "precision")
"""Columns that name a configuration: a table's `dup_group` need not tell microbatches and precisions apart."""


def configurations(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """The rows that were predicted, the first of each configuration's repeats with the median of all their times.

    Rows are repeats if their `dup_group`, microbatch and precision agree and they stand for the same runs, hence are predicted
    alike: rows of a group may still differ in heads, recomputation, or what overlaps.
    """
    repeats: dict[Hashable, list[Comparison]] = {}
    for one in comparisons:
        if one.predicted:
            repeats.setdefault(_key(one), []).append(one)
    return [
        replace(
            same[0], measured_us=median(one.measured_us for one in same), repeats=tuple(one.row.row_id for one in same)
        )
        for same in repeats.values()
    ]


def _key(one: Comparison) -> Hashable:
    if not one.row.text("dup_group"):
        return id(one)
    return (*map(one.row.text, NAMED), one.predicted)


# Published rows as measured runs: a calibration fitted to a table of them.

MOST_ROWS = 120
"""Rows taken from a longer table, at even distances: neighbours repeat one configuration."""


def fitted_to(rows: Sequence[PublishedRow], profile: str, tell: Callable[[str], None]) -> Posterior:
    """The calibration by a table; SamplesError where none of its rows can be predicted."""
    taken = [rows[place] for place in spread_evenly(range(len(rows)), MOST_ROWS)]
    measured = [one for row in taken if (one := measured_run(row, profile))]
    if not measured:
        raise SamplesError("--calibrate-on: none of its rows can be predicted; `predict validate published` says why")
    return posterior_of(measured, fit(measured, tell))


def measured_run(row: PublishedRow, profile: str = "", measured_us: float | None = None) -> MeasuredRun | None:
    """A row's measured run; None where it cannot be expressed, or no schedule of it is possible. `measured_us` is a median of repeats."""
    try:
        runs = candidates(row, profile).runs
        for run in runs:
            estimate(run, require_fit=False)
    except (NotExpressibleError, InfeasibleError):
        return None
    return MeasuredRun(name=row.row_id, runs=runs, measured_us=measured_us or row.measured_us or math.nan)


# The command: read the rows, calibrate where that was asked for, predict.

SHIPPED_RUNS = SHIPPED_DATA / "published" / "runs.csv"
"""Runs whose figures papers and open repositories print, typed from them, each with its source."""
WHOSE = (
    "these are the runs that ship, data/published/runs.csv: README's first figure on published runs. Its others rest on a larger "
    "table, which does not ship: give yours with --truth (`predict schema --truth` describes its columns)"
)


def validate_published(
    *,
    truth: Path | None,
    profile: str,
    calibrate_on: Path | None,
    calibration: Path | None,
    tell: Callable[[str], None],
) -> tuple[list[Comparison], Posterior | None]:
    """Verdicts on the rows of `truth` (those that ship without one), and the calibration that was used, if any."""
    if profile:
        require_known(profile)
    if truth is None:
        tell(WHOSE)
    rows = list(read_rows(truth or SHIPPED_RUNS))
    if calibrate_on:
        if calibration is None:
            raise UserError("--calibrate-on: needs a file to write the terms to; name it with --calibration")
        require_place(calibration)
        fitted = fitted_to(list(read_rows(calibrate_on, "--calibrate-on")), profile, tell)
        with naming_the_disk(calibration):
            write_atomically(calibration, calibration_text(fitted).encode())
        posterior: Posterior | None = fitted
    else:
        posterior = read_calibration(calibration) if calibration else None
    with progress_display("predicting") as progress:
        comparisons = compare(rows, profile=profile, calibration=posterior, progress=progress)
    return comparisons, posterior
