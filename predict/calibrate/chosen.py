"""The choice of which runs to measure: those that stand for the others, by the plans alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from predict.run.calibration.priors import prior_deviations
from regressors.features.arrays import Floats

RULE = (
    "one after the other, the run that brings all runs nearest to one of those chosen, by how each depends on the terms (medoids); no "
    "measured time is looked at"
)


def medoids(slopes: Floats, count: int) -> list[int]:
    """Places of `count` runs, at most all but one, by RULE; `slopes` are derivatives by the terms, shape (runs, terms). The ends of the
    space would tell more of single terms, but there a step is least like what the terms say of it."""
    scaled = slopes * prior_deviations()
    distances = np.linalg.norm(scaled[:, np.newaxis] - scaled, axis=-1)
    nearest = np.full(len(slopes), np.inf)
    chosen: list[int] = []
    for _ in range(min(count, len(slopes) - 1)):
        left = np.minimum(nearest[:, np.newaxis], distances).sum(axis=0)
        left[chosen] = np.inf
        chosen.append(int(np.argmin(left)))
        nearest = np.minimum(nearest, distances[:, chosen[-1]])
    return chosen


def spread_evenly(items: Sequence[int], most: int) -> list[int]:
    """Up to `most` of the items, at even distances."""
    every = max(1, -(-len(items) // most))
    return list(items[::every])
