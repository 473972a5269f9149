"""Fitting the calibration's terms to measured runs: few, bounded, pulled towards 1, and judged on sources left out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from statistics import fmean

from predict import estimate
from predict.run.calibration import Calibration
from predict.run.calibration_file import bounds, calibrated
from predict.run.training_run import TrainingRun
from predict.validate.published.row import NotExpressibleError, PublishedRow
from predict.validate.published.runs import candidates
from sampling.errors import InfeasibleError, SamplesError

MOST_ROWS = 120
"""Rows taken from a longer table, at even distances: neighbours repeat one configuration."""
PULL = 0.35
"""Prior standard deviation of a term's logarithm about 0, in units of one row's error: a term that no row constrains stays 1."""
ROW_ERROR = 0.08
"""Error of one row in log time: published runs of one configuration differ by as much."""
STEP, LEAST_STEP = 0.25, 0.01
"""First and last step of the search in a term's logarithm; it is halved in between."""
FOLDS = 2
"""Parts of a table with a single source, which stand for sources in the cross-validation."""
TERMS = tuple(field.name for field in fields(Calibration))


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """The runs that a row may stand for, and the measured step time."""

    source: str
    runs: tuple[TrainingRun, ...]
    measured_us: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Fit:
    """Terms, and mean errors in percent: without them, with them, and with terms fitted to the other sources."""

    calibration: Calibration
    rows: int
    error_before: float
    error_after: float
    error_left_out: float


def fit(rows: Sequence[PublishedRow], profile: str = "", tell: Callable[[str], None] = lambda _: None) -> Fit:
    """SamplesError where fewer than ten rows can be predicted."""
    every = max(1, math.ceil(len(rows) / MOST_ROWS))
    measured = [one for row in rows[::every] if (one := _measured(row, profile))]
    if len(measured) < 10:
        raise SamplesError(f"--calibrate-on: {len(measured)} of its rows can be predicted; give 10 or more")
    errors_left_out: list[float] = []
    for name, left_out in _left_out(measured).items():
        tell(f"fitting without {name}")
        others = [one for one in measured if one not in left_out]
        errors_left_out += _errors(left_out, _fitted(others))
    tell("fitting to all")
    calibration = _fitted(measured)
    return Fit(
        calibration=calibration,
        rows=len(measured),
        error_before=_mean_percent(_errors(measured, Calibration())),
        error_after=_mean_percent(_errors(measured, calibration)),
        error_left_out=_mean_percent(errors_left_out),
    )


def _measured(row: PublishedRow, profile: str) -> Measured | None:
    try:
        runs = candidates(row, profile).runs
    except NotExpressibleError:
        return None
    return Measured(source=row.text("source_id"), runs=runs, measured_us=row.measured_us or math.nan)


def _left_out(measured: Sequence[Measured]) -> Mapping[str, list[Measured]]:
    sources = list(dict.fromkeys(one.source for one in measured))
    if len(sources) > 1:
        return {source: [one for one in measured if one.source == source] for source in sources}
    return {f"part {fold + 1}": list(measured[fold::FOLDS]) for fold in range(FOLDS)}


def _fitted(measured: Sequence[Measured]) -> Calibration:
    """The terms of least loss, by pattern search from 1, one term at a time: the loss is cheap and has few terms."""
    logs = dict.fromkeys(TERMS, 0.0)
    best, step = _loss(measured, logs), STEP
    while step >= LEAST_STEP:
        improved = False
        for name in TERMS:
            for change in (step, -step):
                low, high = map(math.log, bounds()[name])
                tried = {**logs, name: min(high, max(low, logs[name] + change))}
                loss = _loss(measured, tried)
                if loss < best - 1e-9:
                    logs, best, improved = tried, loss, True
                    break
        if not improved:
            step /= 2
    return _calibration(logs)


def _calibration(logs: Mapping[str, float]) -> Calibration:
    return Calibration(**{name: math.exp(value) for name, value in logs.items()})


def _loss(measured: Sequence[Measured], logs: Mapping[str, float]) -> float:
    """The sum of absolute errors, which is robust to single odd rows, and the pull towards 1."""
    errors = _errors(measured, _calibration(logs))
    return sum(abs(error) for error in errors) / ROW_ERROR + sum((value / PULL) ** 2 for value in logs.values())


def _errors(measured: Sequence[Measured], calibration: Calibration) -> list[float]:
    """Errors in log time of the runs that can be predicted."""
    errors = []
    for one in measured:
        try:
            logs = [math.log(estimate(calibrated(run, calibration)).median_us) for run in one.runs]
        except InfeasibleError:
            continue
        errors.append(fmean(logs) - math.log(one.measured_us))
    return errors


def _mean_percent(errors: Sequence[float]) -> float:
    return 100 * fmean(abs(math.expm1(error)) for error in errors)
