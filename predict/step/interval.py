"""The step's 90 % interval. Its width comes from three things, which add in quadrature:

- each kind of call (name and phase), pushed to the bounds of its `Times` through the schedule (`predict.step.spread`): errors of
  one kind move together, and errors of different kinds are independent;
- the host's launch floor: as widely as sampled ones differ, else LAUNCH_FLOOR_WIDTH;
- the composition error (`predict.step.composition_error`): what no single call's interval covers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from predict.interval import Interval, from_shifts
from predict.schedules.engine.order import Order
from predict.schedules.engine.timing import rank_ends
from predict.step.chunk_times import buckets_of, chunk_times
from predict.step.priced_block import Bucket
from predict.step.priced_rank import PricedRank, distinct_chunks
from predict.step.spread import Kind, Spread
from regressors.features.arrays import Floats


def step_interval(
    step_us: float, order: Order, ranks: tuple[PricedRank, ...], composition_error: float, *, blocking: bool = False
) -> Interval:
    """The 90 % bounds about `step_us`; `composition_error` is a half-width in log time."""
    _, high, low = _shifts(order, ranks, blocking=blocking)
    above = (step_us * math.expm1(composition_error), *np.maximum(high, 0.0))
    below = (step_us * math.expm1(-composition_error), *np.minimum(low, 0.0))
    return from_shifts(step_us, below=below, above=above, least=step_us / 10)


def calls_half_width(step_us: float, order: Order, ranks: tuple[PricedRank, ...], *, blocking: bool = False) -> float:
    """Half-width in log time at 90 % that the bounds of the calls alone leave the step."""
    return step_interval(step_us, order, ranks, 0.0, blocking=blocking).half_width_log


def kind_shifts(
    order: Order, ranks: tuple[PricedRank, ...], *, blocking: bool = False
) -> Mapping[Kind, tuple[float, float]]:
    """Kind of call → the changes of the step time in µs at its lower and at its upper bound."""
    kinds, high, low = _shifts(order, ranks, blocking=blocking)
    return {kind: (float(below), float(above)) for kind, below, above in zip(kinds, low, high, strict=True)}


def _shifts(order: Order, ranks: tuple[PricedRank, ...], *, blocking: bool) -> tuple[Sequence[Kind], Floats, Floats]:
    """The kinds of call, and the changes of the step time in µs when one kind of call at a time takes its upper bound, and its lower one, shape (kinds,)."""
    distinct = list({id(rank): rank for rank in ranks}.values())
    of_chunks = buckets_of(distinct_chunks(distinct)[0])
    buckets = [*of_chunks, *(bucket for rank in distinct for bucket in _at_end(rank))]
    spread = Spread(list({id(bucket): bucket for bucket in buckets}.values()))
    whole = (_rank_ends(order, ranks, spread, spread.of(of_chunks), blocking=blocking) + _after(ranks, spread)).max(
        axis=0
    )
    shifts = whole[1:] - whole[0]
    return spread.kinds, shifts[: len(spread.kinds)], shifts[len(spread.kinds) :]


def _at_end(rank: PricedRank) -> tuple[Bucket, ...]:
    """The work that a rank does once a step."""
    return rank.blocking_reduction, rank.gradient_reduction, rank.parameter_all_gather, rank.optimizer


def _rank_ends(
    order: Order, ranks: tuple[PricedRank, ...], spread: Spread, of_chunks: Floats, *, blocking: bool
) -> Floats:
    """When each rank's pipeline is done in each case, shape (ranks, cases). Only the cases that change an action are played:
    `of_chunks` are the times of all the chunks' buckets, shape (buckets, cases)."""
    changed = np.flatnonzero((of_chunks != of_chunks[:, :1]).any(axis=0))
    played = [0, *changed.tolist()]
    times = chunk_times(ranks, order.placement, lambda buckets: spread.of(buckets)[:, played])
    ends = rank_ends(order, times, blocking=blocking)
    place = np.zeros(of_chunks.shape[1], dtype=np.intp)
    place[played] = np.arange(len(played))
    whole: Floats = ends[:, place]
    return whole


def _after(ranks: Sequence[PricedRank], spread: Spread) -> Floats:
    """Time after the pipeline by rank and case; the compute that hides communication keeps its median."""
    distinct = list({id(rank): rank for rank in ranks}.values())
    place = {id(rank): index for index, rank in enumerate(distinct)}
    alike: dict[tuple[int, ...], list[int]] = {}
    for index, rank in enumerate(distinct):
        alike.setdefault(tuple(map(id, (rank.chunks, *_at_end(rank)))), []).append(index)
    after = np.empty((len(distinct), 1 + 2 * len(spread.kinds)))
    for members in alike.values():
        after[members] = _after_of_alike([distinct[index] for index in members], spread)
    whole: Floats = after[[place[id(rank)] for rank in ranks]]
    return whole


def _after_of_alike(ranks: Sequence[PricedRank], spread: Spread) -> Floats:
    """`_after` of ranks that differ in their windows alone."""
    one = ranks[0]
    by_chunk = zip(*(rank.windows for rank in ranks), strict=True)
    windows = [(of_chunk[0][0], np.array([[window_us] for _, window_us in of_chunk])) for of_chunk in by_chunk]
    blocking, reduction, all_gather, optimizer = spread.of(_at_end(one))[:, np.newaxis]
    exposed: Floats = one.exposed_reduction_in(windows, reduction) + one.exposed_all_gather_of(all_gather)
    after: Floats = blocking + exposed + optimizer
    return after
