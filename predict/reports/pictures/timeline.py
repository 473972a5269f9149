"""The parts of a timeline that the picture of a schedule shows: the steady state, a time axis that leaves its repeats out, and the boxes.

The steady state is the stretch in which every rank does the same again and again, a period apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, floor

import numpy as np
from numpy.typing import NDArray

from predict.reports.palette import paint_codes
from predict.reports.schedule import round_step
from predict.schedules.engine.folding import longest_run, repeats
from predict.schedules.engine.order import CHUNK, MICROBATCH, Order, Rows
from predict.schedules.engine.timing import Timeline
from regressors.features.arrays import Floats, Indices

SAME = 1e-6
"""Share of a period by which times may miss it and still repeat: rounding of sums of floats."""
LEAST_PERIODS = 3
MOST_TOGETHER = 4
"""Microbatches a period that are tried in addition to those of a round: a wave of a V-shaped schedule takes a few."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SteadyState:
    """`count` whole periods from `start` on, in the timeline's unit of time."""

    start: float
    period: float
    count: int


def steady_state(timeline: Timeline) -> SteadyState | None:
    """The repetition that covers the most time on all ranks at once; None where nothing repeats LEAST_PERIODS times."""
    found = [state for together in _candidates(timeline.order) if (state := _repeating(timeline, together))]
    return max(found, key=lambda state: (round((state.count - 1) * state.period, 6), -state.period), default=None)


def _candidates(order: Order) -> Iterator[int]:
    """Microbatches that a period may take of each chain, fewest first."""
    first = order.rows[0]
    other = np.flatnonzero(first[:, CHUNK] != first[0, CHUNK])
    of_a_round = int(other[0]) if len(other) else 1
    yield from sorted({*range(1, MOST_TOGETHER + 1), of_a_round, order.ranks})


def _repeating(timeline: Timeline, together: int) -> SteadyState | None:
    """The stretch in which all ranks repeat themselves with `together` microbatches a period."""
    period, begins, ends = None, 0.0, np.inf
    for rows, start, end in zip(timeline.order.rows, timeline.start, timeline.end, strict=True):
        shift = _shift(rows, together)
        if shift is None:
            return None
        after = start[shift:] - start[:-shift]
        alike = repeats(rows, shift, together)
        if not alike.any():
            return None
        period = float(np.median(after[alike])) if period is None else period
        if period <= 0:
            return None
        lasting = end - start
        tolerance = SAME * period
        alike &= (np.abs(after - period) <= tolerance) & (np.abs(lasting[shift:] - lasting[:-shift]) <= tolerance)
        first, last = longest_run(alike)
        if first == last:
            return None
        begins, ends = max(begins, float(start[first])), min(ends, float(end[last - 1 + shift]))
    if period is None or (count := int((ends - begins) / period + SAME)) < LEAST_PERIODS:
        return None
    return SteadyState(start=begins, period=period, count=count)


def _shift(rows: Rows, together: int) -> int | None:
    """Actions from the one in the middle of the row to the same one for the microbatch `together` further."""
    middle = len(rows) // 2
    wanted = rows[middle].copy()
    wanted[MICROBATCH] += together
    again = np.flatnonzero((rows[middle + 1 :] == wanted).all(axis=1))
    return int(again[0]) + 1 if len(again) else None


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Boxes:
    """The boxes of a rank: spans of places on the axis, the codes of their colours, and the microbatches where each box is
    one action."""

    start: Floats
    end: Floats
    codes: Indices
    microbatches: Indices | None = None


def box_per_action(timeline: Timeline, rank: int, axis: TimeAxis) -> Boxes:
    """A box for each action of the rank that is shown."""
    start, end, index = axis.shown(timeline.start[rank], timeline.end[rank])
    microbatches = timeline.order.rows[rank][index, MICROBATCH].astype(np.intp)
    return Boxes(start=start, end=end, codes=paint_codes(timeline.order, rank)[index], microbatches=microbatches)


def merged(boxes: Boxes, gap: float) -> Boxes:
    """A box for each run of boxes of one colour that are less than `gap` apart, whatever lies between them."""
    by_code = np.lexsort((boxes.start, boxes.codes))
    start, end, codes = boxes.start[by_code], boxes.end[by_code], boxes.codes[by_code]
    apart = (np.diff(codes) != 0) | (start[1:] - end[:-1] >= gap)
    first = np.flatnonzero(np.concatenate([[True], apart]))
    last = np.append(first[1:], len(start)) - 1
    return Boxes(start=start[first], end=end[last], codes=codes[first])
