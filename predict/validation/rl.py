"""Published steps of reinforcement learning beside their predictions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import log
from pathlib import Path
from statistics import fmean, median
from typing import Any

from predict.huggingface.config_json import load_model
from predict.interval import Interval, equally_likely
from predict.model.shipped import shipped_model
from predict.model.spec import ModelSpec
from predict.rl.phases import FACTORS, FITTED_TO, Factors, in_sample, sync_time
from predict.rl.step import RlStep, scaled_step, unscaled_step
from predict.rl.training import Estimate
from predict.serialise import version_of
from predict.validation.published_row import NotExpressibleError, PublishedRow
from predict.validation.rl_fit import Observed, agreeing, factors_without, refit
from predict.validation.rl_rows import is_of_transfers, read_rl_rows, rl_runs_of
from sampling.errors import UserError
from sampling.hardware.cluster import known_hardware, load_cluster
from sampling.progress import Progress, progress_display
from sampling.units import SECOND_US

# A predicted time beside a published one, and figures over many.

PHASES = ("gen", "old_log_prob", "ref", "update_actor", "update_weights", "step")
"""Phases that tables publish."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """One phase of one row."""

    predicted: Interval
    measured_us: float
    in_sample: bool = False
    """A term of the prediction was read from this very source and phase."""

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted.median_us / self.measured_us - 1

    @property
    def covered(self) -> bool:
        return self.predicted.covers(self.measured_us)


def summaries(judged: Mapping[str, Sequence[Judged]]) -> dict[str, dict[str, dict[str, float | None]]]:
    """The figures of each phase: `summary` over times that no term was read from, `summary_in_sample` over the others."""
    return {
        key: {name: summary([one for one in found if one.in_sample == read]) for name, found in judged.items()}
        for key, read in (("summary", False), ("summary_in_sample", True))
    }


def summary(judged: Sequence[Judged]) -> dict[str, float | None]:
    """Mean and median size of the errors, their mean, and the share that the intervals hold; errors are fractions."""
    if not judged:
        return {"rows": 0, "mean": None, "median": None, "bias": None, "coverage": None}
    errors = [one.error for one in judged]
    return {
        "rows": len(judged),
        "mean": fmean(map(abs, errors)),
        "median": median(map(abs, errors)),
        "bias": fmean(errors),
        "coverage": fmean(one.covered for one in judged),
    }


def phase_json(judged: Judged) -> dict[str, Any]:
    """One phase of a row of `predict validate rl --json`."""
    return {
        "predicted_s": judged.predicted.median_us / SECOND_US,
        "low_s": judged.predicted.low_us / SECOND_US,
        "high_s": judged.predicted.high_us / SECOND_US,
        "measured_s": judged.measured_us / SECOND_US,
        "error": judged.error,
        "covered": judged.covered,
        "in_sample": judged.in_sample,
    }


# Published RL steps and their predictions, phase by phase.


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


def rl_json(compared_rows: Sequence[ComparedStep], refit: Factors | None = None) -> dict[str, Any]:
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


# Published times in which new weights reach the engines, beside the model of the phase `update_weights`.

METHODS = {"default": "tensors", "checkpoint engine": "buckets", "broadcast": "host"}
"""A table's word for a method → that of `rl.weight_sync`."""
PHASE = "update_weights"


def transfers_json(rows: Sequence[PublishedRow]) -> dict[str, Any]:
    """The part of `predict validate rl --json` that such a table has."""
    judged = [_judged_transfer(place, row) for place, row in enumerate(rows, 1)]
    return {
        **summaries({PHASE: [one for one in judged if isinstance(one, Judged)]}),
        "rows": [_transfer_row(place, row, one) for place, (row, one) in enumerate(zip(rows, judged, strict=True), 1)],
    }


def _judged_transfer(place: int, row: PublishedRow) -> Judged | str:
    """A row's prediction, or the reason why there is none."""
    try:
        if row.fault:
            raise NotExpressibleError(row.fault)
        seconds = row.number("seconds")
        if not seconds:
            raise NotExpressibleError("seconds: not published")
        method = METHODS.get(row.text("method"))
        if method is None:
            raise NotExpressibleError(f"method: {row.text('method')} is not modelled")
        model, precision = _model_of_transfer(row)
        gpus, hardware = _machines_of_transfer(row)
        cluster = load_cluster(hardware=hardware, nodes=max(1, gpus // 8), gpus_per_node=min(gpus, 8), profile="none")
        link = cluster.link(gpus, cluster.gpus_per_node)
        return Judged(
            predicted=sync_time(model, link, precision, method),
            measured_us=SECOND_US * seconds,
            in_sample=in_sample(row.text("source"), PHASE),
        )
    except NotExpressibleError as error:
        return str(error)


def _model_of_transfer(row: PublishedRow) -> tuple[ModelSpec, str]:
    """The model, and the dtype that its name ends in, bf16 without one."""
    name, _, dtype = row.text("model").partition(" ")
    path = shipped_model(re.sub(r"-Math|\.1(?=$)", "", name))
    if path is None:
        raise NotExpressibleError(f"model: {name} is not in configs/models")
    return load_model(path), dtype.lower() or "bf16"


def _machines_of_transfer(row: PublishedRow) -> tuple[int, str]:
    """GPUs of trainer and engines, and their hardware, which the placement or the source names."""
    text = f"{row.text('placement')} {row.text('source')}".lower()
    counts = re.match(r"(\d+)[^+]*?\+ (\d+)|(\d+) x", text)
    named = [name for name in known_hardware() if re.search(rf"\b{name}\b", text)]
    if not counts or not named:
        raise NotExpressibleError(f"placement: {row.text('placement')} names no GPUs of configs/hardware")
    return sum(int(count) for count in counts.groups() if count), named[0]


def _transfer_row(place: int, row: PublishedRow, judged: Judged | str) -> dict[str, Any]:
    reason = judged if isinstance(judged, str) else None
    return {
        "row_id": row.text("row_id") or f"row {place}",
        "source": row.text("source"),
        "model": row.text("model"),
        "gpu": row.text("placement"),
        "gpus": None,
        "mode": row.text("method"),
        "reason": reason,
        "open_length": False,
        "phases": {} if isinstance(judged, str) else {PHASE: phase_json(judged)},
    }


# `predict validate rl`: a table of published RL steps, predicted and compared.


def validate_rl(truth: Path, estimate: Estimate) -> dict[str, Any]:
    """The errors of every phase of every row, as `--json` prints them; a row that cannot be expressed has its reason.

    A table of weight transfers has the one phase `update_weights`.
    """
    rows = read_rl_rows(truth)
    if is_of_transfers(rows[0].cells):
        return {"version": version_of("validate-rl"), **transfers_json(rows)}
    with progress_display("predicting") as progress:
        predicted = predict_rows(rows, estimate, progress)
    return rl_json(compare(rows, predicted), refit(predicted.fitted(rows)))
