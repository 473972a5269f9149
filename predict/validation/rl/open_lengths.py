"""Mean lengths that a row leaves open: those that the updates of its source's other rows agree with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log

import numpy as np

from predict.rl.phases import Factors
from predict.rl.step import RlStep, scaled_step
from predict.serving.batch import Floats
from predict.validation.published.row import PublishedRow
from predict.validation.rl.fit import ERROR_WIDTH

SAME_TASK = ("source_id", "model", "response_max")
"""Columns by which rows train one model on one task, so that their responses are about as long."""
UNLIKELY = 0.1
"""Likelihood, as a share of the best, below which a mean length is left out."""


def agreeing(
    row: PublishedRow, rows: Sequence[PublishedRow], steps: Mapping[str, Sequence[RlStep]], factors: Factors
) -> tuple[RlStep, ...]:
    """A row's steps by likely mean, without those that other rows of its source contradict; the row itself has no say in it, and the
    factors are those fitted without its source."""
    own = steps[row.row_id]
    others = [one for one in rows if one.row_id != row.row_id and _task(one) == _task(row) and one.row_id in steps]
    misses = [
        miss
        for one in others
        if (miss := _misses(one, steps[one.row_id], factors)) is not None and len(miss) == len(own)
    ]
    if not misses:
        return tuple(own)
    likelihood = np.exp(-np.mean(misses, axis=0) / ERROR_WIDTH)
    kept = likelihood >= UNLIKELY * likelihood.max()
    return tuple(step for step, keep in zip(own, kept, strict=True) if keep)


def _task(row: PublishedRow) -> tuple[str, ...]:
    return tuple(row.text(name) for name in SAME_TASK)


def _misses(row: PublishedRow, likely: Sequence[RlStep], factors: Factors) -> Floats | None:
    """Sizes of the errors of a row's update by likely mean, in log time; None without a published update."""
    seconds = row.number("update_actor_s")
    phases = [scaled_step(step, factors).phase("update_actor") for step in likely]
    if not seconds:
        return None
    return np.array([abs(log(phase.time.median_us / (1e6 * seconds))) for phase in phases if phase])
