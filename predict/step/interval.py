"""The step's 90 % interval: each kind of call pushed to its bounds through the schedule, then combined.

Errors of one kind of call (name and phase) move together, since one model predicts them all; errors of different kinds
are independent, and so is that of the composition itself. Independent contributions add in quadrature.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from predict.schedules.engine import rank_ends
from predict.schedules.order import Order
from predict.step.chunk_times import chunk_times
from predict.step.costing import Priced
from predict.step.stage import Bucket, PricedRank

Floats = NDArray[np.float64]
Kind = tuple[str, str]
Side = Literal["high", "low"]
SIDES: tuple[Side, Side] = ("high", "low")


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """A time in µs with its 90 % bounds."""

    median_us: float
    low_us: float
    high_us: float


def step_interval(step_us: float, order: Order, ranks: tuple[PricedRank, ...], composition_error: float) -> Interval:
    """Bounds about `step_us`. `composition_error` is the relative half-width of what no call's interval covers."""
    kinds = sorted({_kind(unit) for rank in ranks for bucket in _buckets(rank) for unit in bucket.units})
    high, low = (_shifts(order, ranks, kinds, side) for side in SIDES)
    composition_us = composition_error * step_us
    above = math.hypot(composition_us, *np.maximum(high, 0.0))
    below = math.hypot(composition_us, *np.minimum(low, 0.0))
    return Interval(median_us=step_us, low_us=max(step_us - below, step_us / 10), high_us=step_us + above)


def _buckets(rank: PricedRank) -> Iterator[Bucket]:
    yield from (rank.gradients, rank.step)
    for chunk in rank.chunks:
        yield from (chunk.forward, chunk.backward, chunk.backward_input, chunk.backward_weight, chunk.send)


def _kind(unit: Priced) -> Kind:
    return unit.call.NAME, unit.phase


def _shifts(order: Order, ranks: tuple[PricedRank, ...], kinds: list[Kind], side: Side) -> Floats:
    """By how much the step changes when one kind of call at a time takes its bound."""
    place = {kind: index for index, kind in enumerate(kinds, start=1)}

    def pushed(bucket: Bucket) -> Floats:
        """The bucket's time as it is, then with each kind at its bound, shape (1 + kinds,)."""
        sums = np.full(1 + len(kinds), bucket.median_us)
        for unit in bucket.units:
            bound = unit.time.high_us if side == "high" else unit.time.low_us
            sums[place[_kind(unit)]] += unit.count * (bound - unit.time.median_us)
        clipped: Floats = np.maximum(sums, 0.0)
        return clipped

    after = np.array([pushed(rank.gradients) + pushed(rank.step) for rank in ranks])
    whole = (rank_ends(order, chunk_times(ranks, order.placement, pushed)) + after).max(axis=0)
    shifts: Floats = whole[1:] - whole[0]
    return shifts
