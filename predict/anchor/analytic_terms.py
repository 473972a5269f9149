"""The fullest rank's bytes in the three parts that a memory benchmark corrects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from predict.memory.estimate import Counting, memory_of
from predict.memory.unit_activations import Source
from predict.run.training_run import TrainingRun


def analytic_terms(run: TrainingRun, *, activations: Source | None = None) -> Mapping[str, Any]:
    """`state_bytes` (with the buffers among tensors), `activation_bytes`, `working_bytes` of the rank with most allocated, and
    `activation_bytes_by_unit`: its live activations by kind of layer, shared out as one microbatch's are."""
    memory = memory_of(run, activations=activations)
    fullest = max(memory.ranks, key=lambda rank: rank.allocated)
    counting = Counting(run, activations)
    kept: dict[str, float] = {}
    for unit in (unit for chunk in counting.held[fullest.rank] for unit in chunk.units):
        kept[unit.name] = kept.get(unit.name, 0.0) + counting.activations.of_unit(unit).kept_bytes
    live = fullest.activations / (sum(kept.values()) or 1.0)
    return {
        "state_bytes": fullest.state,
        "activation_bytes": fullest.activations,
        "working_bytes": fullest.working,
        "activation_bytes_by_unit": {name: live * size for name, size in kept.items()},
    }
