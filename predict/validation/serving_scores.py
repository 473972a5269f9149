"""Measured capacities: loads that are stable, loads that are not, and completions per second under these."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

from predict.serialise import version_of
from predict.serving.coefficients import chosen_coefficients
from predict.serving.scheduler.simulate import capacity_per_s
from predict.validation.closed_loops import closed_loop_json, compared_loops, read_closed_loops
from predict.validation.serving import (
    SUB,
    Case,
    ComparedStage,
    RefusedStage,
    ServingComparison,
    Transfer,
    replayed,
    transferred,
)
from predict.validation.serving_rows import read_stages
from predict.validation.truth_table import columns_of, read_declared
from sampling.files.disk import is_missing
from sampling.files.schema import Key
from sampling.progress import progress_display

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


def capacities(folder: Path, comparison: ServingComparison) -> Iterator[Capacity]:
    """The rows of the folder's table of capacities whose server is that of a stage; none without a table. SamplesError lists every fault of it."""
    rows = [] if is_missing(folder / FILE) else read_declared(folder / FILE, CapacityRow, CAPACITIES)
    for row in rows:
        case = _case_of(row, comparison)
        if case is not None:
            yield _capacity(row, case, comparison)


def _case_of(row: CapacityRow, comparison: ServingComparison) -> Case | None:
    """The stage of the row's server, one of its own profile where there is one."""
    like = [
        case
        for case in comparison.cases
        if (case.stage.model, case.stage.gpu, case.stage.tp) == (row.model, row.gpu, row.tp) and case.stage.dp == 1
    ]
    return min(like, key=lambda case: not case.stage.profile.startswith(row.profile), default=None)


def _capacity(row: CapacityRow, case: Case, comparison: ServingComparison) -> Capacity:
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


# Errors of predicted serving runs, summed up: means over stages below saturation, every stage one vote.

FIGURES = ("e2e", "ttft", "tpot", "e2e_p90")


def serving_json(
    compared: Sequence[ComparedStage], refused: Sequence[RefusedStage], found: Sequence[Capacity], *, model: str
) -> dict[str, Any]:
    """The stable content of `predict validate serving --json`; errors and shares are fractions."""
    judged = [one for one in compared if one.stage.regime == SUB]
    return {
        "version": version_of("validate-serving"),
        "model": model,
        "summary": {
            **mean_errors(judged),
            "coverage": _coverage(judged),
            "capacity": fmean(abs(one.error) for one in found) if found else None,
        },
        "bias": {name: _mean(_known(judged, name)) for name in FIGURES},
        "by_gpu": _by(judged, lambda one: one.stage.gpu),
        "by_model": _by(judged, lambda one: one.stage.model),
        "by_source": _by(judged, lambda one: one.stage.source),
        "rows": [_row(one) for one in compared],
        "refused": [{"experiment": one.stage.experiment, "stage": one.stage.stage, "why": one.why} for one in refused],
        "capacities": [{**asdict(one), "error": one.error} for one in found],
    }


def transfer_json(transfer: Transfer) -> dict[str, Any]:
    """The part `transfer`: the GPU that coefficients were fitted on, and their errors on each other one."""
    return {
        "fitted_on": transfer.fitted_on,
        **mean_errors(transfer.compared),
        "coverage": _coverage(transfer.compared),
        "by_gpu": _by(transfer.compared, lambda one: one.stage.gpu),
    }


def mean_errors(compared: Sequence[ComparedStage]) -> dict[str, float | None]:
    """The mean size of the errors of each figure."""
    return {name: mean_error(compared, name) for name in FIGURES}


def mean_error(compared: Iterable[ComparedStage], name: str) -> float | None:
    """Mean size of the errors of one figure; None where no stage has it."""
    return _mean(map(abs, _known(compared, name)))


def _coverage(compared: Iterable[ComparedStage]) -> float | None:
    """Share of the stages whose mean E2E lies in its interval."""
    return _mean(one.covered for one in compared if one.covered is not None)


def _known(compared: Iterable[ComparedStage], name: str) -> list[float]:
    return [error for one in compared if (error := one.errors[name]) is not None]


def _mean(values: Iterable[float]) -> float | None:
    listed = list(values)
    return fmean(listed) if listed else None


def _by(compared: Sequence[ComparedStage], key: Callable[[ComparedStage], str]) -> dict[str, Mapping[str, Any]]:
    groups: dict[str, list[ComparedStage]] = {}
    for one in compared:
        groups.setdefault(key(one), []).append(one)
    return {name: {"rows": len(group), **mean_errors(group)} for name, group in sorted(groups.items())}


def _row(one: ComparedStage) -> dict[str, Any]:
    stage, found = one.stage, one.predicted
    return {
        "experiment": stage.experiment,
        "stage": stage.stage,
        "model": stage.model,
        "gpu": stage.gpu,
        "profile": stage.profile,
        "rate_rps": stage.rate_rps,
        "regime": stage.regime,
        "fitted_without": one.fitted_without,
        "predicted_ms": {
            "e2e": found.e2e.mean_us / 1e3,
            "e2e_low": one.low.e2e.mean_us / 1e3,
            "e2e_high": one.high.e2e.mean_us / 1e3,
            "ttft": found.ttft.mean_us / 1e3,
            "tpot": found.tpot.mean_us / 1e3,
            "e2e_p90": found.e2e.percentiles_us[90] / 1e3,
        },
        "measured_ms": {
            "e2e": stage.e2e_mean_ms,
            "ttft": stage.ttft_mean_ms,
            "tpot": stage.tpot_mean_ms,
            "e2e_p90": stage.e2e_p90_ms,
        },
        "errors": dict(one.errors),
        "covered": one.covered,
    }


# `predict validate serving`: a folder of measured serving runs, predicted and compared.


def validate_serving(truth: Path, model: str, coefficients: Path | None) -> dict[str, Any]:
    """The errors of every stage in the folder, as `--json` prints them; by the shipped coefficients of a model where none are given."""
    used = chosen_coefficients(model, coefficients)
    stages = read_stages(truth)
    comparison = ServingComparison(stages, used)
    rows = []
    with progress_display("simulating") as progress:
        for case in comparison.cases:
            rows.append(comparison.compared(case))
            progress(len(rows), len(comparison.cases), case.stage.experiment)
        replays = list(replayed(truth, comparison))
        loops = closed_loop_json(*compared_loops(read_closed_loops(truth), used, progress))
    content = serving_json(rows, comparison.refused, list(capacities(truth, comparison)), model=used.model)
    return {
        **content,
        "transfer": transfer_json(transferred(stages, comparison.model)),
        "replay": {"stages": len(replays), **mean_errors(replays)},
        "closed_loop": loops,
    }
