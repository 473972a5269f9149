"""The level of a noisy series: how fast the machine ran at each reading, apart from the noise of the readings themselves.

A reading errs by 5 to 15 % while the machine's speed moves as much within minutes. The local level model (Durbin and Koopman, Time Series
Analysis by State Space Methods, 2012, chapter 2) takes the level to walk at random and the readings to lie about it: what the
readings before and after a moment say of it counts by how near they are. How fast the level walks is what predicts each
reading best from those before it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise

MOST_SURPRISE = 2.5
"""Deviations from what is expected beyond which a reading counts as at this distance: a burst of load is not a new level."""
WALKS = tuple(10 ** (exponent / 2) for exponent in range(-8, 5))
"""Variances of the level's steps from one reading to the next, as shares of that of a reading's noise, that are tried."""
MEDIAN_APART = 0.6745 * math.sqrt(2)
"""Median distance of two normal values, in their standard deviations."""


def neighbours_deviation(values: Sequence[float]) -> float:
    """Standard deviation of one value about those beside it, by the median distance of neighbours; 0 of a single value."""
    apart = [abs(after - before) for before, after in pairwise(values)]
    return statistics.median(apart) / MEDIAN_APART if apart else 0.0


def smoothed(values: Sequence[float]) -> list[float]:
    """The level at each value of a series."""
    noise = neighbours_deviation(values)
    if not noise:
        return list(values)
    return min((_Filtered(values, walk, noise) for walk in WALKS), key=lambda one: one.surprise).levels()


class _Filtered:
    """The level at each value by those up to it (the Kalman filter), if it walks by `walk`; variances are shares of the noise's."""

    def __init__(self, values: Sequence[float], walk: float, noise: float) -> None:
        usual, most = statistics.median(values[:5]), MOST_SURPRISE * noise
        self.level = [min(usual + most, max(usual - most, values[0]))]
        self.variance, self.expected_variance = [1.0], [1.0]
        self.surprise = 0.0
        """Sum of the distances of the values from those expected; a burst of load counts the same whatever the walk."""
        for value in values[1:]:
            expected_variance = self.variance[-1] + walk
            most = MOST_SURPRISE * noise * math.sqrt(expected_variance + 1)
            apart = value - self.level[-1]
            self.surprise += min(abs(apart), 2 * MOST_SURPRISE * noise)
            gain = expected_variance / (expected_variance + 1)
            self.level.append(self.level[-1] + gain * max(-most, min(most, apart)))
            self.variance.append((1 - gain) * expected_variance)
            self.expected_variance.append(expected_variance)

    def levels(self) -> list[float]:
        """The levels by the values after each as well (the smoother of Rauch, Tung and Striebel)."""
        found = [self.level[-1]]
        for place in range(len(self.level) - 2, -1, -1):
            share = self.variance[place] / self.expected_variance[place + 1]
            found.append(self.level[place] + share * (found[-1] - self.level[place]))
        return found[::-1]
