"""The first answer: a plan that fits, found in a second by trying those that are likely to, before the search proper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from predict.memory.estimate import capacity_bytes
from predict.plan_search.floors.memory_floor import memory_floors
from predict.plan_search.pricing.outcome import outcomes
from predict.plan_search.space.legal import Space
from predict.step.scheduling import Estimate

TRIES = 12
"""Plans that are estimated at most."""
SAMPLE = 400
"""Plans of a space that are looked at."""
LIKELY = 0.75
"""Share of the memory up to which a plan's floor makes it likely to fit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FirstAnswer:
    """A plan that fits."""

    settings: Mapping[str, Any]
    step_us: float


def first_answer(spaces: Sequence[Space], estimate: Estimate, *, max_memory: float) -> FirstAnswer | None:
    """A plan that fits, of those that are likely to: without recomputation before with it, and of the smallest tp · cp · pp.

    It looks at a part of each space; None where it finds none there.
    """
    for whole in spaces:
        if not len(whole.rows):
            continue
        space = whole.of(np.linspace(0, len(whole.rows) - 1, min(SAMPLE, len(whole.rows))).astype(np.int64))
        capacity = capacity_bytes(space.question.base.cluster.gpu) * max_memory
        floors = memory_floors(space)
        likely = np.flatnonzero(floors <= LIKELY * capacity)
        degrees = space.column("plan.tp") * space.column("plan.cp") * space.column("plan.pp")
        recomputes = space.column("plan.recompute") != "none"
        order = np.lexsort((floors[likely], degrees[likely], recomputes[likely]))
        for row in likely[order][:TRIES].tolist():
            (outcome,) = outcomes(estimate, space.question.base, [(row, space.settings(row))])
            if not outcome.refusal and outcome.memory_bytes <= capacity:
                return FirstAnswer(settings=space.settings(row), step_us=outcome.step_us)
    return None
