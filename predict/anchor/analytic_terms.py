"""The fullest rank's bytes in the three parts that a memory benchmark corrects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from predict.memory.estimate import MemoryModel, memory_of
from predict.run.training_run import TrainingRun


def analytic_terms(run: TrainingRun) -> Mapping[str, Any]:
    """`state_bytes` (with the buffers among tensors), `activation_bytes`, `working_bytes` of the rank with most allocated, and
    `activation_bytes_by_unit`: its live activations by kind of layer, shared out as one microbatch's are."""
    memory = memory_of(run)
    fullest = max(memory.ranks, key=lambda rank: rank.allocated)
    model = MemoryModel(run)
    kept: dict[str, float] = {}
    for unit in (unit for chunk in model.units[fullest.rank] for unit in chunk.units):
        kept[unit.name] = kept.get(unit.name, 0.0) + model.counter.unit(unit).kept
    live = fullest.activations / (sum(kept.values()) or 1.0)
    return {
        "state_bytes": fullest.state,
        "activation_bytes": fullest.activations,
        "working_bytes": fullest.working,
        "activation_bytes_by_unit": {name: live * size for name, size in kept.items()},
    }
