"""The memory of a page: the terms of every pipeline rank at its peak, and their course over the step."""

from __future__ import annotations

from typing import Any

import numpy as np

from predict.memory.memory_timeline import STACKED_TERMS, RankTimeline
from predict.report.memory.json import memory_json
from predict.report.pictures.memory_plot import COLOURS, shown_ranks
from predict.step.prediction import Prediction
from regressors.features.arrays import Floats
from sampling.units import MIB

COLUMNS = 160
"""Columns of a course; each shows its highest point, so that no peak is lost."""


def memory_view(prediction: Prediction) -> dict[str, Any]:
    """Bytes of each rank at its peak, and MiB over the step of at most 16 ranks; `peak` of a term is its share of the rank's."""
    memory = prediction.memory
    shown = shown_ranks(prediction.memory_timeline, memory.worst.rank)
    return {
        **memory_json(memory),
        "terms": list(STACKED_TERMS),
        "colours": COLOURS,
        "course": [_course(each) for each in shown],
    }


def _course(each: RankTimeline) -> dict[str, Any]:
    edges = np.linspace(0.0, float(each.end_us[-1]), COLUMNS + 1)
    highest = _highest(each, edges)
    terms = {name: np.round(each.terms[name][highest] / MIB).astype(int).tolist() for name in STACKED_TERMS}
    return {"rank": each.rank, "edges_us": [round(float(edges[0])), round(float(edges[-1]))], "terms_mib": terms}


def _highest(each: RankTimeline, edges: Floats) -> list[int]:
    """The span with the highest total in each column."""
    first = np.searchsorted(each.end_us, edges[:-1], side="right")
    last = np.maximum(np.searchsorted(each.start_us, edges[1:]), first + 1)
    total = each.total
    return [
        int(low) + int(np.argmax(total[low:high]))
        for low, high in zip(np.minimum(first, len(total) - 1), last, strict=True)
    ]
