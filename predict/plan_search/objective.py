"""Objectives: what plans are ranked by, each with the floor that no plan undercuts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from predict.run.model_flops import model_flops_per_token
from predict.run.training_run import TrainingRun
from sampling.errors import UserError


@dataclass(frozen=True, kw_only=True, slots=True)
class Objective:
    """A figure of which less is better. `value` grows with both of its figures, so that their floors make a floor of it."""

    name: str
    meaning: str
    value: Callable[[TrainingRun, Any, Any], Any]
    """From a run of the cluster and model, its time per token in µs, and its memory in bytes."""
    timed: bool = True
    """Whether it follows from the step's time, whose errors it then has."""


def _time(run: TrainingRun, us_per_token: Any, memory_bytes: Any) -> Any:
    return us_per_token


def _gpu_time(run: TrainingRun, us_per_token: Any, memory_bytes: Any) -> Any:
    return us_per_token * run.cluster.world_size


def _memory(run: TrainingRun, us_per_token: Any, memory_bytes: Any) -> Any:
    return memory_bytes


def _energy(run: TrainingRun, us_per_token: Any, memory_bytes: Any) -> Any:
    if run.cluster.gpu.power_w is None:
        raise UserError(
            f"--objective energy: the hardware file of {run.cluster.gpu.name} states no power_w; add it, or take cost"
        )
    return us_per_token * run.cluster.world_size * run.cluster.gpu.power_w


def _peak_flops(run: TrainingRun, us_per_token: Any, memory_bytes: Any) -> Any:
    """FLOPs that the GPUs could do per token, over those of the model: 1 / MFU."""
    peak = run.cluster.gpu.peak_flops_per_us(run.precision) * run.cluster.world_size
    return us_per_token * peak / model_flops_per_token(run.model, run.batch.seq_len)


OBJECTIVES: Mapping[str, Objective] = {
    each.name: each
    for each in (
        Objective(name="time", meaning="time per token", value=_time),
        Objective(name="cost", meaning="GPU-hours per token", value=_gpu_time),
        Objective(name="memory", meaning="expected peak of memory", value=_memory, timed=False),
        Objective(name="energy", meaning="energy per token", value=_energy),
        Objective(name="mfu", meaning="model FLOPs utilisation", value=_peak_flops),
    )
}
