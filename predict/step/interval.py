"""The step's 90 % interval. Its width comes from three things, which add in quadrature:

- each kind of call (name and phase), pushed to the bounds of its `Times` through the schedule: errors of one kind move
  together, since one model predicts them all, and errors of different kinds are independent;
- the host's launch floor (FLOOR_WIDTH);
- the composition error (`predict.step.composition_error`): what no single call's interval covers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from predict.prices.price_list import Priced
from predict.schedules.engine.order import Order
from predict.schedules.engine.timing import rank_ends
from predict.step.chunk_times import chunk_times
from predict.step.priced_block import Bucket, PricedBlock, Units
from predict.step.priced_rank import PricedRank

Floats = NDArray[np.float64]
Kind = tuple[str, str]
COMMON_SHARE = 0.35
"""Share of an analytic call's half-width that is common to all calls of its kind: on public tables the bias of a kind on a GPU is about a
third of the spread of its shapes (products 3-5 of 16-22 %, attention 5-10 of 23-44 %)."""
FLOOR = ("host", "launch")
FLOOR_WIDTH = 0.15
"""Half-width of the host's launch floor, as a share of it: 1.0-1.3 ms about 1.1 in published stacks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """A time in µs with its 90 % bounds."""

    median_us: float
    low_us: float
    high_us: float


def step_interval(
    step_us: float, order: Order, ranks: tuple[PricedRank, ...], composition_error: float, *, blocking: bool = False
) -> Interval:
    """The 90 % bounds about `step_us`; `composition_error` is a half-width in log time."""
    kinds = sorted({_kind(unit) for block in _blocks(ranks) for unit in block.all_units()})
    if any(block.floor_us for block in _blocks(ranks)):
        kinds.append(FLOOR)
    high, low = _shifts(order, ranks, kinds, blocking=blocking)
    above = math.hypot(step_us * math.expm1(composition_error), *np.maximum(high, 0.0))
    below = math.hypot(step_us * math.expm1(-composition_error), *np.minimum(low, 0.0))
    return Interval(median_us=step_us, low_us=max(step_us - below, step_us / 10), high_us=step_us + above)


def _blocks(ranks: tuple[PricedRank, ...]) -> Iterator[PricedBlock]:
    seen = set()
    for rank in ranks:
        for bucket in _buckets(rank):
            for repeated in bucket.blocks:
                if id(repeated.priced) not in seen:
                    seen.add(id(repeated.priced))
                    yield repeated.priced


def _buckets(rank: PricedRank) -> Iterator[Bucket]:
    yield from (rank.blocking_reduction, rank.gradient_reduction, rank.parameter_all_gather, rank.optimizer)
    for chunk in rank.chunks:
        yield from (chunk.forward, chunk.backward, chunk.backward_input, chunk.backward_weight, chunk.send)


def _kind(unit: Priced) -> Kind:
    return unit.call.NAME, unit.phase


def _shifts(order: Order, ranks: tuple[PricedRank, ...], kinds: list[Kind], *, blocking: bool) -> tuple[Floats, Floats]:
    """Changes of the step time in µs when one kind of call at a time takes its upper bound, and its lower one, shape (kinds,).

    All are timed at once: the median, then each kind at its upper bound, then each at its lower.
    """
    above = {kind: index for index, kind in enumerate(kinds, start=1)}
    below = {kind: len(kinds) + index for kind, index in above.items()}
    cases = 1 + 2 * len(kinds)
    known: dict[int, Floats] = {}

    def pushed(units: Units) -> Floats:
        """The calls' time in each case, shape (cases,)."""
        sums = np.full(cases, sum(unit.total_us for unit in units))
        for unit in units:
            kind, time = _kind(unit), unit.time
            weight = unit.count * (COMMON_SHARE if time.source == "analytic" else 1.0)
            sums[above[kind]] += weight * (time.high_us - time.median_us)
            sums[below[kind]] += weight * (time.low_us - time.median_us)
        return sums

    floors = np.ones(cases)
    if FLOOR in above:
        floors[above[FLOOR]] += FLOOR_WIDTH
        floors[below[FLOOR]] -= FLOOR_WIDTH

    def of_bucket(bucket: Bucket) -> Floats:
        total = np.zeros(cases)
        for repeated in bucket.blocks:
            if id(repeated.priced) not in known:
                known[id(repeated.priced)] = repeated.priced.value(pushed, floors)
            total += repeated.count * known[id(repeated.priced)]
        return np.maximum(total, 0.0)

    after = np.array([_after(rank, of_bucket) for rank in ranks])
    whole = (rank_ends(order, chunk_times(ranks, order.placement, of_bucket), blocking=blocking) + after).max(axis=0)
    shifts = whole[1:] - whole[0]
    return shifts[: len(kinds)], shifts[len(kinds) :]


def _after(rank: PricedRank, of: Callable[[Bucket], Floats]) -> Floats:
    """Time after the pipeline in each case; the compute that hides communication keeps its median."""
    reduction, all_gather = of(rank.gradient_reduction), of(rank.parameter_all_gather)
    exposed = rank.exposed_reduction_of(reduction) + rank.exposed_all_gather_of(all_gather)
    return of(rank.blocking_reduction) + exposed + of(rank.optimizer)
