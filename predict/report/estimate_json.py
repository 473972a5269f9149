"""The estimate as `--json` prints it; `version` changes when a key changes its meaning."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from predict.memory.estimate import memory_of_step
from predict.report.memory_json import verdict_json
from predict.run.smallest_cluster import smallest_cluster
from predict.step.estimate import StepEstimate
from predict.step.interval import Interval

VERSION = 1


def interval_json(interval: Interval) -> dict[str, float]:
    return {"median": interval.median_us, "low": interval.low_us, "high": interval.high_us}


def estimate_json(estimate: StepEstimate) -> dict[str, Any]:
    """All of the estimate in plain values: times in µs, shares as fractions."""
    return {
        "version": VERSION,
        "run": estimate.run.name,
        "schedule": estimate.run.plan.schedule,
        "step_time_us": interval_json(estimate.step_time),
        "tokens_per_second": estimate.tokens_per_second,
        "tokens_per_second_per_gpu": estimate.tokens_per_second_per_gpu,
        "mfu": estimate.mfu,
        "bubble_fraction": estimate.bubble_fraction,
        "breakdown_us": estimate.breakdown_us,
        "sources": estimate.sources,
        "stages": [asdict(stage) for stage in estimate.stages],
        "smallest_cluster": asdict(smallest_cluster(estimate.run)),
        "memory": verdict_json(memory_of_step(estimate)),
        "execution": asdict(estimate.run.execution),
        "provenance": estimate.provenance,
    }
