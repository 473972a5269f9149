"""The front of time, memory and GPUs: plans of which none other is better in one of the three and no worse in the others.

It is exact too: a plan is priced unless a priced one is no worse than the plan's floors in all three.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from predict.plan_search.pricing.workers import Workers
from predict.plan_search.search import LONGEST_ROUND, SLOWER, Found, price_plans
from predict.run.model_flops import tokens_per_step
from regressors.features.arrays import Floats


@dataclass(frozen=True, kw_only=True, slots=True)
class FrontPlan:
    """A plan of the front."""

    settings: Mapping[str, Any]
    step_us: float
    us_per_token: float
    memory_bytes: float
    gpus: int


def front(found: Found, workers: Workers) -> tuple[FrontPlan, ...]:
    """The front over all plans of a search, the fastest first; what it prices counts among the search's priced plans."""
    floors = _floors(found)
    plans = [(of, plan) for of, own in enumerate(found.surveys) for plan in range(len(own.space.rows))]
    order = np.lexsort((floors[:, 1], floors[:, 0]))
    left = [index for index in order.tolist() if plans[index] not in found.judged]
    before = found.priced
    while left:
        left = _undominated(floors, left, _priced(found))
        chosen, left = left[:LONGEST_ROUND], left[LONGEST_ROUND:]
        price_plans(found, [plans[index] for index in chosen], workers)
    found.take_back(SLOWER, found.priced - before)
    priced = _priced(found)
    best = [ranked for ranked, own in zip(found.ranked, priced, strict=True) if not _is_dominated(own, priced)]
    made = [
        FrontPlan(
            settings=found.surveys[ranked.survey].space.settings(ranked.outcome.number),
            step_us=ranked.outcome.step_us,
            us_per_token=ranked.outcome.step_us / tokens_per_step(found.run(ranked)),
            memory_bytes=ranked.outcome.memory_bytes,
            gpus=found.run(ranked).cluster.world_size,
        )
        for ranked in best
    ]
    return tuple(sorted(made, key=lambda plan: (plan.us_per_token, plan.memory_bytes, plan.gpus)))


def _floors(found: Found) -> Floats:
    """Time per token, memory and GPUs that each plan needs at least, shape (plans, 3)."""
    parts = []
    for own, times in zip(found.surveys, found.time_floors, strict=True):
        base = own.space.question.base
        tokens = own.space.column("batch.global") * own.space.column("batch.seq_len")
        gpus = np.full(len(times), float(base.cluster.world_size))
        parts.append(np.stack([times / tokens, own.memory_floors, gpus], axis=1))
    return np.concatenate([*parts, np.zeros((0, 3))])


def _priced(found: Found) -> Floats:
    """The same of the plans that were priced and fit."""
    rows = [
        (
            ranked.outcome.step_us / tokens_per_step(found.run(ranked)),
            ranked.outcome.memory_bytes,
            float(found.run(ranked).cluster.world_size),
        )
        for ranked in found.ranked
    ]
    return np.array(rows).reshape(-1, 3)


def _undominated(floors: Floats, left: Sequence[int], priced: Floats) -> list[int]:
    rows = np.array(left)
    keep = np.ones(len(rows), dtype=bool)
    for one in priced:
        keep &= (floors[rows] < one).any(axis=1)
    return [int(row) for row in rows[keep]]


def _is_dominated(own: Floats, priced: Floats) -> bool:
    return bool(((priced <= own).all(axis=1) & (priced < own).any(axis=1)).any())
