"""Published rows as measured runs: a calibration fitted to a table of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from predict import estimate
from predict.measured_runs.calibrate import spread_evenly
from predict.measured_runs.fit_terms import MeasuredRun, fit, posterior_of
from predict.run.calibration_terms import Posterior
from predict.validation.published.row import NotExpressibleError, PublishedRow
from predict.validation.published.runs import candidates
from sampling.errors import InfeasibleError, SamplesError

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
