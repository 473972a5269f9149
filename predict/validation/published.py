"""Published, measured training runs compared with predictions: `predict validate published`."""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import TypeAlias

from predict import estimate
from predict.measured_runs.calibrate import spread_evenly
from predict.measured_runs.fit_terms import MeasuredRun, fit, posterior_of
from predict.plan_search.unknown_settings import LikelySteps
from predict.prices.published_constants import CONSTANTS
from predict.prices.sample_provenance import require_known
from predict.run.calibration_file import calibrated, calibration_text, read_calibration
from predict.run.calibration_terms import Posterior
from predict.run.model_flops import mfu
from predict.run.training_run import TrainingRun
from predict.step.prediction import Prediction
from predict.validation.compared import Compared, Refused, grouped
from predict.validation.published_row import NotExpressibleError, PublishedRow, read_rows
from predict.validation.published_runs import candidates
from predict.validation.published_software import completeness
from sampling.errors import InfeasibleError, UserError
from sampling.files.disk import naming_the_disk, require_place, write_atomically
from sampling.files.places import SHIPPED_DATA
from sampling.progress import Progress, progress_display, silent

MIXTURE = "MoE"


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison(Compared):
    """A published run next to its prediction, in µs; `kind` is dense or MoE."""

    row: PublishedRow
    assumed: str = ""
    """What the row leaves open, and what that is taken for."""
    kind: str
    sources: Mapping[str, float]
    at_peak_us: float
    """Time of the model's FLOPs at the peak of all GPUs: over the measured time, the measured MFU."""
    microbatches: int
    """Microbatches of a replica in a step."""
    repeats: tuple[str, ...] = ()
    """Ids of the rows that the measurement is the median of, if it is of several."""

    @property
    def source(self) -> str:
        return self.row.text("source_id")

    @property
    def judged_as(self) -> str:
        """The class that the row is judged in: its kind, and how much of the run it states."""
        return f"{self.kind}, {completeness(self.row, sparse=self.kind == MIXTURE)}"


ComparedRun: TypeAlias = Comparison | Refused[PublishedRow]


def compare(
    rows: Sequence[PublishedRow],
    *,
    profile: str = "",
    calibration: Posterior | None = None,
    progress: Progress = silent,
) -> list[ComparedRun]:
    """Predict every row, with the samples of `profile` and the terms of `calibration` where they are named."""
    comparisons = []
    for done, row in enumerate(rows, 1):
        comparisons.append(_compare_one(row, profile, calibration))
        progress(done, len(rows), row.row_id)
    return comparisons


def _compare_one(row: PublishedRow, profile: str, calibration: Posterior | None) -> ComparedRun:
    try:
        found = candidates(row, profile)
        runs = [calibrated(run, calibration) if calibration else run for run in found.runs]
        likely = LikelySteps(
            predictions=tuple(map(estimate, runs)), unknown=found.unknown, unknown_settings_width=unstated_recipe(runs)
        )
    except (NotExpressibleError, InfeasibleError) as error:
        return Refused(row=row, why=str(error))
    return Comparison(
        row=row,
        predicted=likely.step_time,
        measured=row.measured_us or math.nan,
        assumed="; ".join(found.assumed),
        kind=MIXTURE if runs[0].model.experts else "dense",
        sources=_mean_sources(likely.predictions),
        at_peak_us=mfu(runs[0], 1.0),
        microbatches=runs[0].microbatches,
    )


def unstated_recipe(runs: Sequence[TrainingRun]) -> float:
    """Half-width in log time that the recipe of a mixture adds where a row leaves it open, so that several runs stand for it."""
    return CONSTANTS["UNSTATED_RECIPE"].value if len(runs) > 1 and runs[0].model.experts else 0.0


def _mean_sources(estimates: Sequence[Prediction]) -> dict[str, float]:
    return {name: fmean(one.sources[name] for one in estimates) for name in estimates[0].sources}


# Repeats of one configuration, which count once: by the median of their measurements.

NAMED = ("dup_group", "mbs", "precision")
"""Columns that name a configuration: a table's `dup_group` may cover several microbatches and precisions."""


def configurations(comparisons: Iterable[ComparedRun]) -> list[Comparison]:
    """The rows that were predicted, the first of each configuration's repeats with the median of all their times.

    Rows are repeats if their `dup_group`, microbatch and precision agree and they stand for the same runs, hence are predicted
    alike: rows of a group may still differ in heads, recomputation, or what overlaps.
    """
    predicted = [one for one in comparisons if isinstance(one, Comparison)]
    return [
        replace(same[0], measured=median(one.measured for one in same), repeats=tuple(one.row.row_id for one in same))
        for same in grouped(predicted, _configuration).values()
    ]


def _configuration(one: Comparison) -> Hashable:
    if not one.row.text("dup_group"):
        return id(one)
    return (*map(one.row.text, NAMED), one.predicted)


# Published rows as measured runs: a calibration fitted to a table of them.

MOST_ROWS = 120
"""Rows taken from a longer table, at even distances: neighbours repeat one configuration."""


def fitted_to(rows: Sequence[PublishedRow], profile: str, report: Callable[[str], None]) -> Posterior:
    """The calibration by a table; UserError where none of its rows can be predicted."""
    taken = [rows[place] for place in spread_evenly(range(len(rows)), MOST_ROWS)]
    measured = [one for row in taken if (one := measured_run(row, profile))]
    if not measured:
        raise UserError("--calibrate-on: none of its rows can be predicted; `predict validate published` says why")
    return posterior_of(measured, fit(measured, report))


def measured_run(row: PublishedRow, profile: str = "", measured_us: float | None = None) -> MeasuredRun | None:
    """A row's measured run; None where it cannot be expressed, or no schedule of it is possible. `measured_us` is a median of repeats."""
    try:
        runs = candidates(row, profile).runs
        for run in runs:
            estimate(run, require_fit=False)
    except (NotExpressibleError, InfeasibleError):
        return None
    return MeasuredRun(name=row.row_id, runs=runs, measured_us=measured_us or row.measured_us or math.nan)


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
    report: Callable[[str], None],
) -> tuple[list[ComparedRun], Posterior | None]:
    """Verdicts on the rows of `truth` (those that ship without one), and the calibration that was used, if any."""
    if profile:
        require_known(profile)
    if truth is None:
        report(WHOSE)
    rows = read_rows(truth or SHIPPED_RUNS)
    if calibrate_on:
        if calibration is None:
            raise UserError("--calibrate-on: needs a file to write the terms to; name it with --calibration")
        require_place(calibration)
        fitted = fitted_to(read_rows(calibrate_on, "--calibrate-on"), profile, report)
        with naming_the_disk(calibration):
            write_atomically(calibration, calibration_text(fitted).encode())
        posterior: Posterior | None = fitted
    else:
        posterior = read_calibration(calibration) if calibration else None
    with progress_display("predicting") as progress:
        comparisons = compare(rows, profile=profile, calibration=posterior, progress=progress)
    return comparisons, posterior
