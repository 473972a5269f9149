"""Published steps of reinforcement learning next to their predictions."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from math import log
from pathlib import Path
from typing import Any

from predict.huggingface.config_json import load_model
from predict.interval import Interval, equally_likely
from predict.model.shipped import shipped_model
from predict.model.spec import ModelSpec
from predict.rl.phases import FACTORS, FITTED_TO, Factors, in_sample, sync_time
from predict.rl.section import COLOCATED
from predict.rl.step import RlStep, scaled_step, unscaled_step
from predict.serialise import picked, version_of
from predict.step.scheduling import Estimate
from predict.validation.compared import Compared, mean_or_none, scores
from predict.validation.published_row import NotExpressibleError, PublishedRow
from predict.validation.published_runs import nodes_of
from predict.validation.rl_fit import Observed, agreeing, doubts, factors_without, refit
from predict.validation.rl_rows import is_of_transfers, read_rl_rows, rl_runs_of
from sampling.errors import UserError
from sampling.hardware.cluster import hardware_facts, known_hardware, load_cluster
from sampling.progress import Progress, progress_display
from sampling.units import SECOND_US

PHASES = ("gen", "old_log_prob", "ref", "update_actor", "update_weights", "step")
"""Phases that tables publish."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedPhase(Compared):
    """One phase of one row, in µs."""

    in_sample: bool = False
    """A term of the prediction was read from this very source and phase."""


def summaries(phases: Mapping[str, Sequence[ComparedPhase]]) -> dict[str, dict[str, Any]]:
    """The figures of each phase: `summary` over times that no term was read from, `summary_in_sample` over the others."""
    return {
        key: {name: summary(one for one in found if one.in_sample == read) for name, found in phases.items()}
        for key, read in (("summary", False), ("summary_in_sample", True))
    }


def summary(compared: Iterable[Compared]) -> dict[str, Any]:
    """Mean and median size of the errors, their mean, and the share that the intervals hold; errors are fractions."""
    return picked(scores(compared), "rows mean median bias coverage")


def phase_json(phase: ComparedPhase) -> dict[str, Any]:
    """One phase of a row of `predict validate rl --json`."""
    return {
        "predicted_s": phase.predicted.median_us / SECOND_US,
        "low_s": phase.predicted.low_us / SECOND_US,
        "high_s": phase.predicted.high_us / SECOND_US,
        "measured_s": phase.measured_us / SECOND_US,
        **picked(phase, "error covered in_sample"),
    }


# Published RL steps and their predictions, phase by phase.


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedStep:
    """A row with its phases, or the reason why it has none."""

    row: PublishedRow
    phases: Mapping[str, ComparedPhase]
    open_length: bool = False
    """No mean length of responses is published, so that the prediction is taken over likely ones."""
    reason: str = ""
    doubt: str = ""
    """What contradicts itself in the row's published times."""


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
    """Every row next to its prediction, or refused. A row of a source that the factors were fitted to takes those of the others."""
    without, doubted = factors_without(predicted.fitted(rows)), doubts(rows)
    found = []
    for row in rows:
        if row.row_id in predicted.reasons:
            found.append(ComparedStep(row=row, phases={}, reason=predicted.reasons[row.row_id]))
            continue
        factors = without.get(row.text("source_id"), FACTORS)
        compared = _compared(row, agreeing(row, rows, predicted.steps, factors), factors)
        found.append(replace(compared, doubt=doubted.get(row.row_id, "")))
    return found


def _compared(row: PublishedRow, likely: Sequence[RlStep], factors: Factors) -> ComparedStep:
    found = [_times(scaled_step(step, factors)) for step in likely]
    measured = {name: row.number(f"{name}_s") for name in PHASES}
    return ComparedStep(
        row=row,
        open_length=row.number("response_mean") is None,
        phases={
            name: ComparedPhase(
                predicted=equally_likely([times[name] for times in found]),
                measured=SECOND_US * seconds,
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

    `refit` are the factors that the rows of the fitted sources give today, next to those that are shipped.
    """
    known = _summaries(one for one in compared_rows if not one.open_length)
    open_lengths = _summaries(one for one in compared_rows if one.open_length)
    return {
        "version": version_of("validate-rl"),
        "summary": known["summary"],
        "summary_of_open_lengths": open_lengths["summary"],
        "summary_in_sample": _summaries(compared_rows)["summary_in_sample"],
        "order": _order(compared_rows),
        "factors": {"shipped": asdict(FACTORS), "refit": refit and asdict(refit)},
        "rows": [_row_json(one, STEP_COLUMNS) for one in compared_rows],
    }


def _summaries(rows: Iterable[ComparedStep]) -> dict[str, Any]:
    listed = list(rows)
    return summaries({name: [one.phases[name] for one in listed if name in one.phases] for name in PHASES})


def _order(rows: Sequence[ComparedStep]) -> dict[str, float | None]:
    """Pairs of a colocated and another placement of one source and GPU: the share in which the faster one is predicted."""
    judged = [one for one in rows if "step" in one.phases]
    colocated = [one for one in judged if one.row.text("mode") == COLOCATED]
    apart = [one for one in judged if one.row.text("mode") != COLOCATED]
    right = [
        _faster(one.phases["step"], other.phases["step"])
        for one, other in product(colocated, apart)
        if _setting(one) == _setting(other)
    ]
    return {"pairs": len(right), "right": mean_or_none(right)}


def _setting(one: ComparedStep) -> tuple[str, ...]:
    return tuple(map(one.row.text, ("source_id", "gpu", "framework_version")))


def _faster(one: Compared, other: Compared) -> bool:
    """Whether the prediction has the two in the order in which they were measured."""
    measured = log(one.measured_us / other.measured_us)
    return measured * log(one.predicted.median_us / other.predicted.median_us) > 0


STEP_COLUMNS = {"source": "source_id", "model": "model", "gpu": "gpu", "gpus": "n_gpus", "mode": "mode"}
TRANSFER_COLUMNS = {"source": "source", "model": "model", "gpu": "placement", "gpus": "", "mode": "method"}
"""What a row says of itself → the column of either kind of table that has it."""


def _row_json(one: ComparedStep, columns: Mapping[str, str]) -> dict[str, Any]:
    row = one.row
    return {
        "row_id": row.row_id,
        **{name: row.text(column) for name, column in columns.items()},
        "gpus": row.number(columns["gpus"]),
        "reason": one.reason or None,
        "doubt": one.doubt or None,
        "open_length": one.open_length,
        "phases": {name: phase_json(phase) for name, phase in one.phases.items()},
    }


# Published times in which new weights reach the engines, next to the model of the phase `update_weights`.

METHODS = {"default": "tensors", "checkpoint engine": "buckets", "broadcast": "host"}
"""A table's word for a method → the word of `rl.weight_sync`."""
PHASE = "update_weights"


def transfers_json(rows: Sequence[PublishedRow]) -> dict[str, Any]:
    """The part of `predict validate rl --json` that such a table has."""
    compared = list(map(_compared_transfer, rows))
    return {
        **summaries({PHASE: [one.phases[PHASE] for one in compared if one.phases]}),
        "rows": [_row_json(one, TRANSFER_COLUMNS) for one in compared],
    }


def _compared_transfer(row: PublishedRow) -> ComparedStep:
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
    except NotExpressibleError as error:
        return ComparedStep(row=row, phases={}, reason=str(error))
    cluster = load_cluster(hardware=hardware, profile="none", **nodes_of(gpus, hardware_facts(hardware).gpus_per_node))
    phase = ComparedPhase(
        predicted=sync_time(model, cluster.link(gpus, cluster.gpus_per_node), precision, method),
        measured=SECOND_US * seconds,
        in_sample=in_sample(row.text("source"), PHASE),
    )
    return ComparedStep(row=row, phases={PHASE: phase})


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
