"""The time axis of a schedule's picture: all of the step, or its steady state once and a gap in place of the repeats."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, floor

import numpy as np
from numpy.typing import NDArray

from predict.report.pictures.timeline.steady_state import SteadyState
from predict.report.schedules.text import round_step
from regressors.features.arrays import Floats


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeAxis:
    """Places of times along a picture, in the timeline's unit of time; from `leaves` to `returns` there is only a gap."""

    makespan: float
    leaves: float
    returns: float
    gap: float
    """Length of the gap in the picture."""

    @classmethod
    def whole(cls, makespan: float) -> TimeAxis:
        return cls(makespan=makespan, leaves=makespan, returns=makespan, gap=0.0)

    @classmethod
    def without_repeats(cls, makespan: float, steady: SteadyState, *, gap_share: float) -> TimeAxis:
        """All but the periods after the first; the gap takes `gap_share` of the picture."""
        leaves = steady.start + steady.period
        returns = steady.start + steady.count * steady.period
        shown = makespan - (returns - leaves)
        return cls(makespan=makespan, leaves=leaves, returns=returns, gap=shown * gap_share / (1 - gap_share))

    @property
    def length(self) -> float:
        return self.makespan - (self.returns - self.leaves) + self.gap

    def place(self, times: Floats) -> Floats:
        """Places of times; those that are not shown lie at the end of the gap."""
        return np.where(times <= self.leaves, times, np.maximum(times - self.returns, 0.0) + self.leaves + self.gap)

    def shown(self, start: Floats, end: Floats) -> tuple[Floats, Floats, NDArray[np.intp]]:
        """Starts and ends of what is shown of actions, and the index of each: one that the gap cuts is shown on either
        side of it."""
        before = np.flatnonzero(start < self.leaves)
        after = np.flatnonzero(end > self.returns)
        starts = [start[before], self.place(np.maximum(start[after], self.returns))]
        ends = [np.minimum(end[before], self.leaves), self.place(end[after])]
        return np.concatenate(starts), np.concatenate(ends), np.concatenate([before, after])

    def ticks(self, count: int) -> Iterator[float]:
        """About `count` times at round numbers, none in the gap."""
        step = round_step(self.length / count) if self.length > 0 else 1.0
        for first, last in ((0.0, self.leaves), (self.returns, self.makespan)):
            for tick in range(ceil(first / step), floor(last / step) + 1):
                yield tick * step
