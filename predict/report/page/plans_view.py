"""Plans of a page: each with its step, MFU, headroom and communication share, and which of them are on the Pareto front."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from predict.plan_search.answer.ranking import Answer
from predict.plan_search.survey import in_words
from predict.report.page.run_view import communication_share
from predict.report.prediction_json import interval_json
from predict.report.search.json import settings_json
from predict.step.prediction import Prediction
from predict.what_if.sweep import SweptRun
from sampling.files.faults import as_written


def plans_of_neighbours(own: Prediction, neighbours: Iterable[SweptRun]) -> list[dict[str, Any]]:
    """The plan itself, then its neighbours by their step time; last those that cannot run, with the reason."""
    rows = [{**plan_row("this plan", own), "own": True}]
    refused = []
    for each in neighbours:
        label = in_words(each.values)
        if each.prediction is None:
            refused.append({"label": label, "reason": each.reason})
        else:
            rows.append(plan_row(label, each.prediction))
    return [*with_front(sorted(rows, key=lambda row: -row["tokens_per_second_per_gpu"])), *refused]


def plans_of_runs(predictions: Sequence[Prediction]) -> list[dict[str, Any]]:
    """The runs of a page beside each other."""
    return with_front([plan_row(each.run.name, each) for each in predictions])


def plans_of_answer(answer: Answer) -> list[dict[str, Any]]:
    """The ranked plans of a search, the best first."""
    rows = []
    for place, plan in enumerate(answer.plans, 1):
        settings = settings_json(plan.settings)
        label = ", ".join(f"{key} {as_written(value)}" for key, value in settings.items() if key != "schedule")
        tied = place > 1 and plan.ratio.tied
        rows.append({**plan_row(f"{place}", plan.prediction), "settings": label, "tied": tied, "own": place == 1})
    return with_front(rows)


def plan_row(label: str, prediction: Prediction) -> dict[str, Any]:
    memory = prediction.memory
    return {
        "label": label,
        "step_us": interval_json(prediction.step_time),
        "tokens_per_second_per_gpu": prediction.tokens_per_second_per_gpu,
        "mfu": prediction.mfu,
        "bubble": prediction.bubble_fraction,
        "communication": communication_share(prediction),
        "memory_bytes": memory.point_bytes,
        "headroom_bytes": memory.headroom_bytes,
        "verdict": memory.verdict,
        "gpus": prediction.run.cluster.world_size,
    }


def with_front(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows, each told whether no other that fits is as fast with less memory: the Pareto front of the two."""
    fitting = [row for row in rows if row["verdict"] != "OOM"]
    return [{**row, "front": row in fitting and not any(_beats(other, row) for other in fitting)} for row in rows]


def _beats(other: dict[str, Any], row: dict[str, Any]) -> bool:
    faster = other["tokens_per_second_per_gpu"] - row["tokens_per_second_per_gpu"]
    smaller = row["memory_bytes"] - other["memory_bytes"]
    return bool(faster >= 0 and smaller >= 0 and (faster > 0 or smaller > 0))
