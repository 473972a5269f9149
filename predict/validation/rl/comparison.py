"""Published RL steps and their predictions, phase by phase."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import log
from statistics import fmean
from typing import Any

from predict.interval import Interval, equally_likely
from predict.rl.phases import FACTORS, FITTED_TO, Factors, in_sample
from predict.rl.step import RlStep, scaled_step, unscaled_step
from predict.rl.training import Estimate
from predict.serialise import version_of
from predict.validation.published.row import NotExpressibleError, PublishedRow
from predict.validation.rl.fit import Observed, factors_without
from predict.validation.rl.judged import PHASES, Judged, phase_json, summaries
from predict.validation.rl.open_lengths import agreeing
from predict.validation.rl.rows import rl_runs_of
from sampling.errors import UserError
from sampling.progress import Progress
from sampling.units import SECOND_US


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedStep:
    """A row with its phases, or the reason why it has none."""

    row: PublishedRow
    phases: Mapping[str, Judged]
    open_length: bool = False
    """No mean length of responses is published, so that the prediction is taken over likely ones."""
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PredictedRows:
    """The predictions of rows without factors, one for each likely length, by `row_id`; or why there are none."""

    steps: Mapping[str, Sequence[RlStep]]
    reasons: Mapping[str, str]

    def fitted(self, rows: Iterable[PublishedRow]) -> list[Observed]:
        """The rows of the sources that the factors are fitted to."""
        found = [Observed(row=row, step=self.steps[row.row_id][0]) for row in rows if row.row_id in self.steps]
        return [one for one in found if one.source in FITTED_TO]


def predict_rows(rows: Sequence[PublishedRow], estimate: Estimate, progress: Progress) -> PredictedRows:
    """Predict every row that can be expressed."""
    steps: dict[str, list[RlStep]] = {}
    reasons: dict[str, str] = {}
    for place, row in enumerate(rows, 1):
        try:
            steps[row.row_id] = [unscaled_step(run, estimate) for run in rl_runs_of(row)]
        except (NotExpressibleError, UserError) as error:
            reasons[row.row_id] = str(error)
        progress(place, len(rows), row.row_id)
    return PredictedRows(steps=steps, reasons=reasons)


def compare(rows: Sequence[PublishedRow], predicted: PredictedRows) -> list[ComparedStep]:
    """Every row beside its prediction, or refused. A row of a source that the factors were fitted to takes those of the others."""
    without = factors_without(predicted.fitted(rows))
    found = []
    for row in rows:
        if row.row_id in predicted.reasons:
            found.append(ComparedStep(row=row, phases={}, reason=predicted.reasons[row.row_id]))
            continue
        factors = without.get(row.text("source_id"), FACTORS)
        found.append(_compared(row, agreeing(row, rows, predicted.steps, factors), factors))
    return found


def _compared(row: PublishedRow, likely: Sequence[RlStep], factors: Factors) -> ComparedStep:
    found = [_times(scaled_step(step, factors)) for step in likely]
    measured = {name: row.number(f"{name}_s") for name in PHASES}
    return ComparedStep(
        row=row,
        open_length=row.number("response_mean") is None,
        phases={
            name: Judged(
                predicted=equally_likely([times[name] for times in found]),
                measured_us=SECOND_US * seconds,
                in_sample=in_sample(row.text("source_id"), name),
            )
            for name, seconds in measured.items()
            if seconds and name in found[0]
        },
    )


def _times(step: RlStep) -> dict[str, Interval]:
    return {phase.name: phase.time for phase in step.phases} | {"step": step.time}


def as_json(compared_rows: Sequence[ComparedStep], refit: Factors | None = None) -> dict[str, Any]:
    """The stable content of `predict validate rl --json`; errors and shares are fractions. Times that a term was read from stand apart.

    `refit` are the factors that the rows of the fitted sources give today, beside those that are shipped.
    """
    known = _summaries([one for one in compared_rows if not one.open_length])
    open_lengths = _summaries([one for one in compared_rows if one.open_length])
    return {
        "version": version_of("validate-rl"),
        "summary": known["summary"],
        "summary_of_open_lengths": open_lengths["summary"],
        "summary_in_sample": _summaries(compared_rows)["summary_in_sample"],
        "order": _order(compared_rows),
        "factors": {"shipped": asdict(FACTORS), "refit": refit and asdict(refit)},
        "rows": [_row(one) for one in compared_rows],
    }


def _summaries(rows: Sequence[ComparedStep]) -> dict[str, Any]:
    return summaries({name: _of(rows, name) for name in PHASES})


def _of(rows: Iterable[ComparedStep], name: str) -> list[Judged]:
    return [one.phases[name] for one in rows if name in one.phases]


def _order(rows: Sequence[ComparedStep]) -> dict[str, float | None]:
    """Pairs of a colocated and another placement of one source and GPU: the share in which the faster one is told."""
    judged = [one for one in rows if "step" in one.phases]
    right = []
    for first in judged:
        for second in judged:
            same = all(
                first.row.text(name) == second.row.text(name) for name in ("source_id", "gpu", "framework_version")
            )
            if not same or first.row.text("mode") != "colocated" or second.row.text("mode") == "colocated":
                continue
            one, other = first.phases["step"], second.phases["step"]
            measured, predicted = (
                log(one.measured_us / other.measured_us),
                log(one.predicted.median_us / other.predicted.median_us),
            )
            right.append(measured * predicted > 0)
    return {"pairs": len(right), "right": fmean(right) if right else None}


def _row(one: ComparedStep) -> dict[str, Any]:
    row = one.row
    return {
        "row_id": row.row_id,
        "source": row.text("source_id"),
        "model": row.text("model"),
        "gpu": row.text("gpu"),
        "gpus": row.number("n_gpus"),
        "mode": row.text("mode"),
        "reason": one.reason or None,
        "open_length": one.open_length,
        "phases": {name: phase_json(judged) for name, judged in one.phases.items()},
    }
