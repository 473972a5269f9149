"""The first answer, before the search proper: a plan that fits, found in a second by trying those that are likely to, and the seconds
that the search is expected to take."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from predict.memory.estimate import capacity_bytes
from predict.plan_search.floors import block_times, kinds_of, memory_floors, sets_of_blocks
from predict.plan_search.legal import Space
from predict.plan_search.pricing import FEWEST_BATCHES, outcomes
from predict.plan_search.search import BATCH, BLOCKS, Survey
from predict.step.scheduling import Estimate
from regressors.features.arrays import Ints

MOST_FIRST_TRIES = 12
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
        for row in likely[order][:MOST_FIRST_TRIES].tolist():
            (outcome,) = outcomes(estimate, space.question.base, [(row, space.settings(row))])
            if not outcome.refusal and outcome.memory_bytes <= capacity:
                return FirstAnswer(settings=space.settings(row), step_us=outcome.step_us)
    return None


# Seconds that a search is expected to take, said before it starts: a few of its parts are timed, and counted up.

TIMED = 6
"""Estimates, and sets of blocks, of a space that are timed."""
ESTIMATES = 60
"""Plans that are priced in full: 30 to 100 for the 20 best of the searches in tests/bench/search.py."""
START_S = 2.0
"""Start of the worker processes."""


def expected_seconds(surveys: Sequence[Survey], estimate: Estimate, jobs: int) -> float:
    """The time of a search; 0 where no plan may fit."""
    spaces = [own.space for own in surveys if len(own.space.rows)]
    whole = [space for space in spaces if space.question.base.execution.whole_layers]
    if not spaces:
        return 0.0
    estimate_s = fmean(_estimate_s(space, estimate) for space in spaces)
    floors_s = sum(_floors_s(space, jobs) for space in spaces if space not in whole)
    plans = min(sum(len(space.rows) for space in spaces), ESTIMATES) + sum(len(space.rows) for space in whole)
    return floors_s + _shared_out(plans * estimate_s, plans // BATCH, jobs)


def _estimate_s(space: Space, estimate: Estimate) -> float:
    def price(row: int) -> None:
        outcomes(estimate, space.question.base, [(row, space.settings(row))])

    return _timed(price, np.arange(len(space.rows)))


def _floors_s(space: Space, jobs: int) -> float:
    """Seconds to price the sets of blocks that the floors of a space are made of."""
    representatives, _ = sets_of_blocks(space)
    kinds = kinds_of(space)
    of_set_s = _timed(lambda row: block_times([space.run(row)], kinds, halves=False), representatives)
    return _shared_out(len(representatives) * of_set_s, len(representatives) // BLOCKS, jobs)


def _shared_out(seconds: float, batches: int, jobs: int) -> float:
    """Seconds of work whose batches the processes share where they are worth their start."""
    return seconds if jobs == 1 or batches < FEWEST_BATCHES else min(seconds, START_S + seconds / jobs)


def _timed(work: Callable[[int], object], rows: Ints) -> float:
    """The mean time of work on some of the plans, spread over all."""
    chosen = rows[np.linspace(0, len(rows) - 1, min(TIMED, len(rows))).astype(int)]
    started = time.monotonic()
    for row in chosen.tolist():
        work(row)
    return (time.monotonic() - started) / len(chosen)
