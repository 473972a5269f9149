"""A setting of a run and what turning it does, and the figures that are looked at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from predict.step.prediction import Prediction

DENSE, MOE, MLA = "llama3-70b", "qwen3-30b-a3b", "deepseek-v3"
Metric = Callable[[Prediction], float]


def step(told: Prediction) -> float:
    return told.step_time.median_us


def bubble(told: Prediction) -> float:
    return told.bubble_fraction


def first_stage(told: Prediction) -> float:
    return told.stages[0].forward_us


def last_stage(told: Prediction) -> float:
    return told.stages[-1].forward_us


def optimizer(told: Prediction) -> float:
    return told.breakdown_us["optimizer"]


def all_work(told: Prediction) -> float:
    return told.breakdown_us["gemm"]


def allocated(told: Prediction) -> float:
    return told.memory.worst.allocated


def exposed(heading: str) -> Metric:
    return lambda told: told.breakdown_us.get(heading, 0.0)


@dataclass(frozen=True, kw_only=True)
class Knob:
    """`before` and `after` are settings over `base`; between them `metric` grows, or falls."""

    key: str
    before: Any
    after: Any
    grows: bool
    metric: Metric = step
    base: Mapping[str, Any]
    model: str = DENSE
    least: float = 1e-4
    """Relative change."""


def plan(
    key: str, before: Any, after: Any, grows: bool, metric: Metric = step, model: str = DENSE, **base: Any
) -> Knob:
    return Knob(key=f"plan__{key}", before=before, after=after, grows=grows, metric=metric, base=base, model=model)


def execution(
    key: str, before: Any, after: Any, grows: bool, metric: Metric = step, model: str = DENSE, **base: Any
) -> Knob:
    return Knob(key=f"execution__{key}", before=before, after=after, grows=grows, metric=metric, base=base, model=model)
