"""Predict the step time, the memory and the cost of a training run.

    prediction = predict.one_batch("configs/runs/demo.yml", ["plan.tp=2"])
    prediction.step_time.median_us, prediction.memory.verdict, prediction.breakdown_us

Every command takes the same path from a run's config to its prediction; `load` and `estimate` are that path (`predict.api.path`).
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from sampling.errors import ConfigError, InfeasibleError, SamplesError, UserError

if TYPE_CHECKING:
    from predict.api.many_plans import compare, default_config, search, sensitivity, sweep
    from predict.api.one_step import (
        days,
        likely_steps,
        memory_advice,
        one_batch,
        one_batch_memory,
        one_batch_predict,
        speed_of_light,
        step_ledger,
        step_speed_of_light,
    )
    from predict.api.other_tools import import_config, launch_arguments
    from predict.api.path import estimate, estimate_as_scheduled, load
    from predict.api.rl_steps import rl_ledger, rl_search, rl_step, rl_step_draws
    from predict.api.servers import serving_answer
    from predict.reports.pictures.figures import plot
    from predict.step.prediction import Prediction

__all__ = [
    "ConfigError",
    "InfeasibleError",
    "Prediction",
    "SamplesError",
    "UserError",
    "compare",
    "days",
    "default_config",
    "estimate",
    "estimate_as_scheduled",
    "import_config",
    "launch_arguments",
    "likely_steps",
    "load",
    "memory_advice",
    "one_batch",
    "one_batch_memory",
    "one_batch_predict",
    "plot",
    "rl_ledger",
    "rl_search",
    "rl_step",
    "rl_step_draws",
    "search",
    "sensitivity",
    "serving_answer",
    "speed_of_light",
    "step_ledger",
    "step_speed_of_light",
    "sweep",
]

HOMES: Mapping[str, tuple[str, ...]] = {
    "predict.api.many_plans": ("compare", "default_config", "search", "sensitivity", "sweep"),
    "predict.api.one_step": (
        "days",
        "likely_steps",
        "memory_advice",
        "one_batch",
        "one_batch_memory",
        "one_batch_predict",
        "speed_of_light",
        "step_ledger",
        "step_speed_of_light",
    ),
    "predict.api.other_tools": ("import_config", "launch_arguments"),
    "predict.api.path": ("estimate", "estimate_as_scheduled", "load"),
    "predict.api.rl_steps": ("rl_ledger", "rl_search", "rl_step", "rl_step_draws"),
    "predict.api.servers": ("serving_answer",),
    "predict.reports.pictures.figures": ("plot",),
    "predict.step.prediction": ("Prediction",),
}
"""Module → the public names that it has. It is imported when one of them is first asked for: `predict --help` needs none."""


def __getattr__(name: str) -> Any:
    home = next((module for module, names in HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(home), name)
    return found


def __dir__() -> list[str]:
    """The public names, for `help(predict)`, and what is loaded."""
    return sorted({*globals(), *__all__})
