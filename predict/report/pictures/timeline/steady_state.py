"""The steady state of a timeline: the stretch in which every rank does the same again and again, a period apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from predict.schedules.engine.folding import longest_run, repeats
from predict.schedules.engine.order import CHUNK, MICROBATCH, Order, Rows
from predict.schedules.engine.timeline import Timeline

SAME = 1e-6
"""Share of a period by which times may miss it and still repeat: rounding of sums of floats."""
LEAST_PERIODS = 3
MOST_TOGETHER = 4
"""Microbatches a period that are tried beside those of a round: a wave of a V-shaped schedule takes a few."""


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
