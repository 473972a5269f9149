"""Measured capacities: loads that are stable, loads that are not, and completions per second under these."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from predict.serving.scheduler.simulate import capacity_per_s
from predict.validation.serving.comparison import Case, Comparison
from predict.validation.truth.table import columns_of, read_declared
from sampling.files.keys import Key
from sampling.files.regular import is_missing

FILE = "serving_capacity.csv"
Rate = Annotated[float | None, Key(maximum=1e9)]
"""Requests per second; blank where it was not measured."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CapacityRow:
    """One row of the table."""

    model: str
    gpu: str
    tp: int
    profile: Annotated[str, Key()] = ""
    prompt: int
    """Tokens of a prompt."""
    output_len: int
    stable_rate_rps: Rate = None
    overloaded_rate_rps: Rate = None
    measured_capacity_rps: Rate = None


CAPACITIES = columns_of(
    CapacityRow,
    "a table of measured capacities",
    not_read={"how it was measured": "capacity_window in_service tpot_ms limited_by how"},
)


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
    """The rows of the folder's table of capacities whose server is that of a stage; none without a table. SamplesError lists every fault of it."""
    rows = [] if is_missing(folder / FILE) else read_declared(folder / FILE, CapacityRow, CAPACITIES)
    for row in rows:
        case = _case_of(row, comparison)
        if case is not None:
            yield _capacity(row, case, comparison)


def _case_of(row: CapacityRow, comparison: Comparison) -> Case | None:
    """The stage of the row's server, one of its own profile where there is one."""
    like = [
        case
        for case in comparison.cases
        if (case.stage.model, case.stage.gpu, case.stage.tp) == (row.model, row.gpu, row.tp) and case.stage.dp == 1
    ]
    return min(like, key=lambda case: not case.stage.profile.startswith(row.profile), default=None)


def _capacity(row: CapacityRow, case: Case, comparison: Comparison) -> Capacity:
    load = replace(case.load, prompt=row.prompt, output=row.output_len)
    table, factors = comparison.table(case), comparison.coefficients.interval_factors
    low, predicted, high = (
        capacity_per_s(case.engine, case.pool, table.scaled(1 / factor), load)
        for factor in (factors.low, factors.median, factors.high)
    )
    return Capacity(
        model=row.model,
        gpu=row.gpu,
        tp=case.stage.tp,
        profile=row.profile,
        stable_rate=row.stable_rate_rps,
        overloaded_rate=row.overloaded_rate_rps,
        measured=row.measured_capacity_rps,
        predicted=predicted,
        low=low,
        high=high,
    )
