"""Measured capacities: loads that are stable, loads that are not, and completions per second under these."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from predict.serving.scheduler.capacity import capacity_per_s
from predict.serving.scheduler.traffic import Load
from predict.validate.serving.comparison import Case, Comparison
from predict.validate.truth.checks import number_of
from sampling.files.regular import NotReadError, is_missing, read_text

FILE = "serving_capacity.csv"


@dataclass(frozen=True, kw_only=True, slots=True)
class Capacity:
    """A measured capacity in requests per second and its prediction, with interval."""

    model: str
    gpu: str
    tp: int
    profile: str
    stable_rate: float | None
    overloaded_rate: float | None
    measured: float | None
    predicted: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """Predicted over measured, less 1; without a measured one, 0 inside the bracket and else the distance from its nearer end."""
        if self.measured:
            return self.predicted / self.measured - 1
        if self.stable_rate and self.predicted < self.stable_rate:
            return self.predicted / self.stable_rate - 1
        if self.overloaded_rate and self.predicted > self.overloaded_rate:
            return self.predicted / self.overloaded_rate - 1
        return 0.0


def capacities(folder: Path, comparison: Comparison) -> Iterator[Capacity]:
    """The rows of the folder's table of capacities whose server is that of a stage; none without a table."""
    path = folder / FILE
    if is_missing(path):
        return
    try:
        rows = list(csv.DictReader(io.StringIO(read_text(path))))
    except NotReadError:
        return
    for row in rows:
        case = _case_of(row, comparison)
        if case is not None:
            yield _capacity(row, case, comparison)


def _case_of(row: dict[str, str], comparison: Comparison) -> Case | None:
    """The stage of the row's server, one of its own profile where there is one."""
    like = [
        case
        for case in comparison.cases
        if (case.stage.model, case.stage.gpu, str(case.stage.tp)) == (row["model"], row["gpu"], row["tp"])
        and case.stage.dp == 1
    ]
    return min(like, key=lambda case: not case.stage.profile.startswith(row["profile"]), default=None)


def _capacity(row: dict[str, str], case: Case, comparison: Comparison) -> Capacity:
    load: Load = replace(case.load, prompt=int(row["prompt"]), output=int(row["output_len"]))
    table = comparison.table(case)
    low, predicted, high = (
        capacity_per_s(case.engine, case.pool, table.scaled(1 / factor), load)
        for factor in comparison.coefficients.interval_factors
    )
    return Capacity(
        model=row["model"],
        gpu=row["gpu"],
        tp=case.stage.tp,
        profile=row["profile"],
        stable_rate=number_of(row["stable_rate_rps"]),
        overloaded_rate=number_of(row["overloaded_rate_rps"]),
        measured=number_of(row["measured_capacity_rps"]),
        predicted=predicted,
        low=low,
        high=high,
    )
