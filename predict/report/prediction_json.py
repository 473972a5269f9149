"""The prediction as `predict one-batch --json` prints it; `version` changes when a key changes its meaning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from predict.report.memory.json import verdict_json
from predict.run.frameworks import refused_by_runtime
from predict.step.interval import Interval
from predict.step.prediction import Prediction

VERSION = 2


def interval_json(interval: Interval) -> dict[str, float]:
    return {"median": interval.median_us, "low": interval.low_us, "high": interval.high_us}


def prediction_json(prediction: Prediction) -> dict[str, Any]:
    """The prediction in plain values: times in µs, sizes in bytes, shares as fractions."""
    run, smallest = prediction.run, prediction.smallest_cluster
    return {
        "version": VERSION,
        "run": run.name,
        "feasible": prediction.feasible,
        "refused_by_runtime": refused_by_runtime(run.execution.framework, run.plan, run.microbatches),
        "schedule": run.plan.schedule,
        "step_time_us": interval_json(prediction.step_time),
        "unknowns_log": dict(prediction.unknowns),
        "tokens_per_second": prediction.tokens_per_second,
        "tokens_per_second_per_gpu": prediction.tokens_per_second_per_gpu,
        "mfu": prediction.mfu,
        "bubble_fraction": prediction.bubble_fraction,
        "breakdown_us": prediction.breakdown_us,
        "sources": prediction.sources,
        "stages": [asdict(stage) for stage in prediction.stages],
        "one_replica": asdict(prediction.one_replica),
        "smallest_cluster": smallest and asdict(smallest),
        "memory": verdict_json(prediction.memory),
        "execution": asdict(run.execution),
        "provenance": dict(prediction.provenance),
    }


def predictions_json(predictions: Mapping[str, Prediction]) -> dict[str, Any]:
    """One prediction by itself; several under their modes."""
    contents = {mode: prediction_json(prediction) for mode, prediction in predictions.items()}
    return {"version": VERSION, **contents} if len(contents) > 1 else next(iter(contents.values()))
