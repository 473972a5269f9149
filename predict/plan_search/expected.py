"""Seconds that a search is expected to take, said before it starts: a few of its parts are timed, and counted up."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import fmean

import numpy as np

from predict.plan_search.floors.block_times import block_times, sets_of_blocks
from predict.plan_search.floors.structures import kinds_of
from predict.plan_search.pricing.outcome import outcomes
from predict.plan_search.pricing.workers import FEWEST_BATCHES
from predict.plan_search.search import BATCH, BLOCKS
from predict.plan_search.space.distinct import Indices
from predict.plan_search.space.legal import Space
from predict.plan_search.survey import Survey
from predict.step.scheduling import Estimate

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


def _timed(work: Callable[[int], object], rows: Indices) -> float:
    """The mean time of work on some of the plans, spread over all."""
    chosen = rows[np.linspace(0, len(rows) - 1, min(TIMED, len(rows))).astype(int)]
    started = time.monotonic()
    for row in chosen.tolist():
        work(row)
    return (time.monotonic() - started) / len(chosen)
