"""Predictions of servers compared with a folder of measured serving runs: `predict validate serving`."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

from predict.interval import Interval
from predict.serialise import each_picked, picked, version_of
from predict.serving.coefficients import chosen_coefficients
from predict.serving.fit import SUB, Case
from predict.serving.simulate import capacity_interval, capacity_per_s
from predict.serving.stages import Stage, read_stages
from predict.truth_table import columns_of, read_declared
from predict.validation.closed_loops import closed_loop_json, compared_loops, read_closed_loops
from predict.validation.compared import Compared, Refused, Scores, grouped, scores
from predict.validation.serving import FIGURES, ComparedStage, ServingComparison, Transfer, replayed, transferred
from sampling.files.disk import is_missing
from sampling.files.schema import Key
from sampling.progress import progress_display

# Measured capacities: loads that are stable, loads that are not, and completions per second under these.

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
    """A measured capacity in requests per second and its prediction."""

    row: CapacityRow
    predicted: Interval

    @property
    def compared(self) -> Compared:
        """The prediction next to the measured capacity, or else next to the point of the bracket that is nearest to it."""
        row = self.row
        nearest = min(max(self.predicted.median, row.stable_rate_rps or 0.0), row.overloaded_rate_rps or math.inf)
        return Compared(predicted=self.predicted, measured=row.measured_capacity_rps or nearest)


def capacities(folder: Path, comparison: ServingComparison) -> Iterator[Capacity]:
    """The rows of the folder's table of capacities whose server is a stage's; none without a table. ConfigError
    lists every fault of it."""
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
    return Capacity(row=row, predicted=capacity_interval(low, predicted, high))


# Errors of predicted serving runs: means over stages below saturation, every stage one vote.


def serving_json(
    compared: Sequence[ComparedStage], refused: Sequence[Refused[Stage]], found: Sequence[Capacity], *, model: str
) -> dict[str, Any]:
    """The stable content of `predict validate serving --json`; errors and shares are fractions."""
    judged = [one for one in compared if one.stage.regime == SUB]
    return {
        "version": version_of("validate-serving"),
        "model": model,
        "summary": {
            **mean_errors(judged),
            "coverage": _scores(judged, "e2e").coverage,
            "capacity": scores(one.compared for one in found).mean,
        },
        "bias": {figure: _scores(judged, figure).bias for figure in FIGURES},
        "by_gpu": _by(judged, lambda one: one.stage.gpu),
        "by_model": _by(judged, lambda one: one.stage.model),
        "by_source": _by(judged, lambda one: one.stage.source),
        "rows": [_row(one) for one in compared],
        "refused": each_picked(refused, "experiment=row.experiment stage=row.stage why"),
        "capacities": each_picked(found, CAPACITY),
    }


CAPACITY = (
    "model=row.model gpu=row.gpu tp=row.tp profile=row.profile stable_rate=row.stable_rate_rps overloaded_rate=row.overloaded_rate_rps"
    " measured=row.measured_capacity_rps predicted=predicted.median low=predicted.low high=predicted.high error=compared.error"
)


def transfer_json(transfer: Transfer) -> dict[str, Any]:
    """The part `transfer`: the GPU that coefficients were fitted on, and their errors on each other one."""
    return {
        "fitted_on": transfer.fitted_on,
        **mean_errors(transfer.compared),
        "coverage": _scores(transfer.compared, "e2e").coverage,
        "by_gpu": _by(transfer.compared, lambda one: one.stage.gpu),
    }


def left_out_json(errors: Mapping[tuple[str, int], Sequence[float]]) -> dict[str, Any]:
    """The part `by_left_out_model`: mean size and mean of the errors of TPOT of a model's stages over so many GPUs."""
    return {
        f"{model} tp {tp}": {"rows": len(own), "tpot": fmean(map(abs, own)), "tpot_bias": fmean(own)}
        for (model, tp), own in errors.items()
    }


def mean_errors(stages: Sequence[ComparedStage]) -> dict[str, float | None]:
    """The mean size of the errors of each figure; None where no stage has it."""
    return {figure: _scores(stages, figure).mean for figure in FIGURES}


def _scores(stages: Iterable[ComparedStage], figure: str) -> Scores:
    return scores(compared for one in stages if (compared := one.compared(figure)))


def _by(stages: Sequence[ComparedStage], key: Callable[[ComparedStage], str]) -> dict[str, Mapping[str, Any]]:
    return {name: {"rows": len(own), **mean_errors(own)} for name, own in sorted(grouped(stages, key).items())}


def _row(one: ComparedStage) -> dict[str, Any]:
    compared = {figure: one.compared(figure) for figure in FIGURES}
    predicted = {figure: one.interval(figure) for figure in FIGURES}
    e2e = {"e2e_low": predicted["e2e"].low / 1e3, "e2e_high": predicted["e2e"].high / 1e3}
    return {
        **picked(one.stage, "experiment stage model gpu profile rate_rps regime"),
        "fitted_without": one.fitted_without,
        "predicted_ms": {figure: time.median / 1e3 for figure, time in predicted.items()} | e2e,
        "measured_ms": one.stage.measured_ms,
        "errors": {figure: each.error if each else None for figure, each in compared.items()},
        **picked(compared["e2e"], "covered"),
    }


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
        "by_left_out_model": left_out_json(comparison.errors_without_their_models()),
        "transfer": transfer_json(transferred(stages, comparison.model)),
        "replay": {"stages": len(replays), **mean_errors(replays)},
        "closed_loop": loops,
    }
