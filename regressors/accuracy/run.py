"""Judge every unit on every split, in parallel, and average by group."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from regressors.accuracy.hold_outs import SPLITS, hold_outs
from regressors.accuracy.score import MANY_PREDICTIONS, Score, score
from regressors.accuracy.transfer import Transfer
from regressors.accuracy.units import Unit
from regressors.dataset.training_data import TrainingData
from regressors.features.arrays import Mask
from regressors.progress import Progress
from sampling.call import Call
from sampling.hardware.cluster import Cluster

VERSION = 1
AVERAGED = ("mape", "median", "p90", "coverage", "half_width", "raw_forest", "raw_xgboost")


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """A unit's scores by split."""

    unit: Unit
    scores: Mapping[str, Score]


def judge_units(units: Sequence[Unit], *, jobs: int, progress: Progress) -> list[Judged]:
    """Every unit that has data, on each of its splits; the largest first, so that no process is left with them."""
    import joblib

    tasks = [(place, split, mask) for place, unit in enumerate(units) for split, mask in _splits(unit)]
    tasks.sort(key=lambda task: -len(task[2]))
    parallel = joblib.Parallel(n_jobs=max(1, min(jobs, len(tasks))), return_as="generator_unordered")
    scores: list[dict[str, Score]] = [{} for _ in units]
    done: Iterator[Any] = parallel(joblib.delayed(_score)(*task, *_work(units[task[0]], task[1])) for task in tasks)
    for count, (place, split, result) in enumerate(done, start=1):
        scores[place][split] = result
        progress(count, len(tasks), f"{units[place].operator}, {split}")
    return [
        Judged(unit=unit, scores={split: of[split] for split in SPLITS if split in of})
        for unit, of in zip(units, scores, strict=True)
    ]


def _splits(unit: Unit) -> Iterator[tuple[str, Mask]]:
    if unit.data is not None:
        yield from hold_outs(unit.data, unit.family).items()


def _work(unit: Unit, split: str) -> tuple[TrainingData | None, Sequence[Call], Cluster | None]:
    """Predicting is timed once a unit."""
    return (unit.data, unit.calls[:MANY_PREDICTIONS] if split == SPLITS[0] else (), unit.cluster)


def _score(place: int, split: str, mask: Mask, data: Any, calls: Any, cluster: Any) -> tuple[int, str, Score]:
    return place, split, score(data, mask, calls, cluster)


def as_json(judged: Sequence[Judged], carried: Sequence[Transfer]) -> dict[str, Any]:
    """`summary`: the means over a group's operators, a row a group and split; `operators`: each of them."""
    return {
        "version": VERSION,
        "date": time.strftime("%Y-%m-%d"),
        "machine": {"processor": platform.machine(), "cores": os.cpu_count(), "python": platform.python_version()},
        "summary": summaries(judged),
        "transfer": [asdict(transfer) for transfer in carried],
        "operators": [
            {"key": [*one.unit.group, split], "operator": one.unit.operator, "quarantined": one.unit.quarantined}
            | asdict(of_split)
            for one in judged
            for split, of_split in one.scores.items()
        ],
        "quarantined": [
            {
                "group": list(one.unit.group),
                "operator": one.unit.operator,
                "rows": one.unit.quarantined,
                "whole_table": not one.scores,
            }
            for one in judged
            if one.unit.quarantined
        ],
    }


def summaries(judged: Sequence[Judged]) -> list[dict[str, Any]]:
    """Means over the operators of each group, each operator counting alike; the fits' seconds and bytes are sums."""
    rows = []
    for group in dict.fromkeys(one.unit.group for one in judged):
        for split in SPLITS:
            scores = [one.scores[split] for one in judged if one.unit.group == group and split in one.scores]
            if scores:
                means = {name: _mean([getattr(of, name) for of in scores]) for name in AVERAGED}
                rows.append(
                    {"key": [*group, split], "operators": len(scores), "rows": sum(of.rows for of in scores)}
                    | means
                    | {"fit_s": sum(of.fit_s for of in scores), "model_bytes": sum(of.model_bytes for of in scores)}
                )
    return rows


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
