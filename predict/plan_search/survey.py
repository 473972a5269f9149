"""Survey of a question: its legal plans, and those of them that memory does not rule out, before any is priced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from predict.memory.estimate import capacity_bytes
from predict.plan_search.floors.memory_floor import memory_floors, state_floors
from predict.plan_search.space.legal import LeftOut, Space
from regressors.features.arrays import Floats
from sampling.files.faults import as_written
from sampling.units import GIB

STATE = "memory: weights, gradients and optimizer state alone do not fit"
FLOOR = "memory: state and the activations of the forwards before the first backward do not fit"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Survey:
    """The plans of one question that may fit, with the memory that each needs at least."""

    space: Space
    """Those that may fit."""
    legal: int
    memory_floors: Floats
    """Bytes per GPU, by plan."""
    capacity_bytes: float
    """What a plan may take of the device."""
    nearest: Mapping[str, Any] | None
    """The settings of the legal plan that needs least memory, where none may fit."""
    nearest_bytes: float = 0.0


def survey(legal: Space, *, max_memory: float) -> Survey:
    """The survey of the legal plans, in which a plan may take the share `max_memory` of the device's memory."""
    capacity = capacity_bytes(legal.question.base.cluster.gpu) * max_memory
    space = legal
    nearest: Mapping[str, Any] | None = None
    nearest_bytes = 0.0
    floors = np.zeros(len(space.rows))
    for measure, reason in ((state_floors, STATE), (memory_floors, FLOOR)):
        if not len(space.rows):
            break
        floors = measure(space)
        fits = floors <= capacity
        if not fits.any():
            least = int(floors.argmin())
            nearest, nearest_bytes = space.settings(least), float(floors[least])
        if not fits.all():
            space = _without(space, fits, floors, reason, capacity)
        floors = floors[fits]
    return Survey(
        space=space,
        legal=len(legal.rows),
        memory_floors=floors,
        capacity_bytes=capacity,
        nearest=nearest,
        nearest_bytes=nearest_bytes,
    )


def _without(space: Space, fits: NDArray[np.bool_], floors: Floats, reason: str, capacity: float) -> Space:
    """The space of the plans that may fit; the others are counted under the reason."""
    row = int(np.flatnonzero(~fits)[0])
    need = f"{floors[row] / GIB:,.1f} GiB at least of {capacity / GIB:,.1f}: {in_words(space.settings(row))}"
    found = LeftOut(count=int((~fits).sum()), example=need)
    return replace(space.of(fits), left_out={**space.left_out, reason: found})


SHORT: Mapping[str, str] = {
    "plan.recompute": "recomp",
    "plan.recompute_modules": "modules",
    "plan.count_embedding": "emb",
    "plan.count_loss": "loss",
    "plan.first_stage_layers": "first",
    "plan.last_stage_layers": "last",
}
"""Names of keys that are long for a table."""


def in_words(settings: Mapping[str, Any]) -> str:
    """The searched keys of a plan: `tp 4, pp 8, recompute full`."""
    return ", ".join(f"{path.partition('.')[2]} {as_written(value)}" for path, value in settings.items())
