"""Everything a page shows of one predicted run, in plain values: times in µs, sizes in bytes, shares as fractions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from predict.ledger.books import Ledger, ledger_of
from predict.ledger.training_cost import TrainingCost
from predict.ledger.waterfall.bars import waterfall
from predict.ledger.waterfall.classes import COMMUNICATION
from predict.report.feasibility import misfit
from predict.report.memory.json import verdict_json
from predict.report.page.assumptions import assumptions
from predict.report.page.ledger_view import ledgers_view
from predict.report.page.memory_view import memory_view
from predict.report.page.timeline_view import timeline_view
from predict.report.pictures.palette import CLASS_COLOURS
from predict.report.prediction_json import interval_json
from predict.report.provenance_text import first_notes
from predict.report.run_text import run_text
from predict.step.prediction import Prediction
from predict.what_if.compare import settings_of
from sampling.errors import ConfigError

MOST_KINDS = 12
"""Kinds of call in the tornado of what the step's interval rests on."""


def run_view(prediction: Prediction, *, cost: TrainingCost | None = None) -> dict[str, Any]:
    """The view of a run in a report; `cost` is that of a whole training."""
    ledger = _ledger(prediction)
    return answer_view(prediction) | {
        "assumptions": [asdict(each) for each in assumptions(prediction, ledger)],
        "mfu": ledger and {name: one.mfu for name, one in ledger.mfu.items()},
        "ledgers": ledger and ledgers_view(ledger),
        "cost": cost and asdict(cost),
    }


def answer_view(prediction: Prediction) -> dict[str, Any]:
    """The part of a view that follows each change of a plan at once: answer, waterfall, memory and timeline."""
    return {
        "name": prediction.run.name,
        "about": run_text(prediction.run),
        "prediction": _headline(prediction),
        "misfit": misfit(prediction.memory),
        "settings": {path: plain(value) for path, value in settings_of(prediction.run).items()},
        "gpus": prediction.run.cluster.world_size,
        "waterfall": waterfall_view(prediction),
        "memory": memory_view(prediction),
        "timeline": timeline_view(prediction),
        "unknowns": _unknowns(prediction),
    }


def _headline(prediction: Prediction) -> dict[str, Any]:
    """The figures of `predict one-batch --json` that a page's headline has, under the same keys, and what they rest on."""
    return {
        "notes": first_notes(prediction.run, prediction.provenance, analytic=prediction.is_analytic),
        "step_time_us": interval_json(prediction.step_time),
        "tokens_per_second": prediction.tokens_per_second,
        "tokens_per_second_per_gpu": prediction.tokens_per_second_per_gpu,
        "mfu": prediction.mfu,
        "bubble_fraction": prediction.bubble_fraction,
        "sources": prediction.sources,
        "memory": verdict_json(prediction.memory),
    }


def _ledger(prediction: Prediction) -> Ledger | None:
    """The books of a run; None for a model with layers whose FLOPs no convention counts."""
    try:
        return ledger_of(prediction)
    except ConfigError:
        return None


def waterfall_view(prediction: Prediction) -> list[dict[str, Any]]:
    """The bars of the step in their order; together they are the step."""
    return [
        {
            "name": bar.name,
            "us": bar.time_us,
            "low": bar.low_us,
            "high": bar.high_us,
            "headings": dict(sorted(bar.headings.items(), key=lambda item: -item[1])),
            "colour": CLASS_COLOURS[bar.name],
        }
        for bar in waterfall(prediction)
    ]


def communication_share(prediction: Prediction) -> float:
    """Share of the step in which communication is exposed."""
    return sum(bar.time_us for bar in waterfall(prediction) if bar.name in COMMUNICATION) / prediction.median_us


def _unknowns(prediction: Prediction) -> list[dict[str, Any]]:
    """The changes of the step, in µs, when one kind of call at a time is at its bounds; the widest first."""
    widest = sorted(prediction.kind_shifts_us.items(), key=lambda item: item[1][0] - item[1][1])
    return [
        {"name": f"{name} {phase}".replace("_", " "), "below": below, "above": above}
        for (name, phase), (below, above) in widest[:MOST_KINDS]
        if above > below
    ]


def plain(value: Any) -> Any:
    """A setting as JSON takes it."""
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    return [*map(plain, value)] if isinstance(value, tuple) else value
