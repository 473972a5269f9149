"""The step's 90 % interval. Its width comes from three things, which add in quadrature:

- each kind of call (name and phase), pushed to the bounds of its `Times` through the schedule: errors of one kind
  move together, since one model predicts them all, and errors of different kinds are independent;
- the host's launch floor: as widely as sampled ones differ, else LAUNCH_FLOOR_WIDTH;
- the composition error (`predict.step.composition_error`): what no single call's interval covers.
"""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from predict.interval import Interval, from_shifts
from predict.prices.price_list import Priced
from predict.schedules.engine.order import Order
from predict.schedules.engine.timing import rank_ends
from predict.step.priced_block import Bucket, PricedBlock, Units
from predict.step.priced_rank import PricedRank, buckets_of, chunk_times, distinct_chunks
from regressors.features.arrays import Floats

CallKind = tuple[str, str]
COMMON_SHARE = 0.35
"""Share of an analytic call's half-width that is common to all calls of its kind: on public tables the bias of a kind on a GPU is about a
third of the spread of its shapes (products 3-5 of 16-22 %, attention 5-10 of 23-44 %)."""
FLOOR = ("host", "launch")
KEPT = 4096


class OwnCases(NamedTuple):
    """A time in µs at its median, then by `kinds` at their upper bounds, then at their lower ones."""

    kinds: tuple[CallKind, ...]
    values: Floats


@lru_cache(maxsize=KEPT)
def cases_of_block(block: PricedBlock) -> OwnCases:
    kinds = tuple(dict.fromkeys(_kind(unit) for unit in block.all_units())) + ((FLOOR,) if block.floor else ())
    above = {kind: index for index, kind in enumerate(kinds, start=1)}
    cases = 1 + 2 * len(kinds)

    def pushed(units: Units) -> Floats:
        """The calls' time in each case, shape (cases,)."""
        sums = [sum(unit.total_us for unit in units)] * cases
        for unit in units:
            at, time = above[_kind(unit)], unit.time
            weight = unit.count * (COMMON_SHARE if time.source == "analytic" else 1.0)
            sums[at] += weight * (time.high_us - time.median_us)
            sums[at + len(kinds)] += weight * (time.low_us - time.median_us)
        return np.array(sums)

    floors = np.ones(cases)
    if block.floor:
        floors[above[FLOOR]] = block.floor.high_us / block.floor.median_us
        floors[above[FLOOR] + len(kinds)] = block.floor.low_us / block.floor.median_us
    return OwnCases(kinds=kinds, values=block.value(pushed, floors))


@lru_cache(maxsize=KEPT)
def cases_of_bucket(bucket: Bucket) -> OwnCases:
    """The sum of the bucket's blocks, at least 0: a kind that a block has none of leaves it as it is."""
    blocks = [(cases_of_block(each.priced), each.count) for each in bucket.blocks]
    kinds = tuple(dict.fromkeys(kind for block, _ in blocks for kind in block.kinds))
    values = np.zeros(1 + 2 * len(kinds))
    for block, count in blocks:
        values += count * _in_cases_of(kinds, block)
    return OwnCases(kinds=kinds, values=np.maximum(values, 0.0))


def _in_cases_of(kinds: tuple[CallKind, ...], own: OwnCases) -> Floats:
    """The time in the cases of more kinds, shape (cases,)."""
    if kinds == own.kinds:
        return own.values
    values = np.empty(1 + 2 * len(kinds))
    values[:] = own.values[0]
    values[_places(kinds, own.kinds)] = own.values[1:]
    return values


@lru_cache(maxsize=KEPT)
def _places(kinds: tuple[CallKind, ...], some: tuple[CallKind, ...]) -> NDArray[np.intp]:
    """The places of some kinds' cases among those of all: the upper bounds, then the lower ones."""
    upper = np.array([1 + kinds.index(kind) for kind in some], dtype=np.intp)
    return np.concatenate([upper, upper + len(kinds)])


def _kind(unit: Priced) -> CallKind:
    return unit.call.NAME, unit.phase


class BucketTimes:
    """The times of many buckets in all cases: the median, then each kind of call at its upper bound, then each at its lower."""

    def __init__(self, buckets: Sequence[Bucket]) -> None:
        own = [cases_of_bucket(bucket) for bucket in buckets]
        self.kinds = tuple(sorted(set().union(*(each.kinds for each in own))))
        self._values = np.array([_in_cases_of(self.kinds, each) for each in own])
        self._rows = {id(bucket): row for row, bucket in enumerate(buckets)}

    def of(self, buckets: Sequence[Bucket]) -> Floats:
        """Times in µs, shape (buckets, cases)."""
        return self._values[[self._rows[id(bucket)] for bucket in buckets]]


def step_interval(step_us: float, order: Order, ranks: tuple[PricedRank, ...], composition_error: float) -> Interval:
    """The 90 % bounds about `step_us`; `composition_error` is a half-width in log time."""
    _, high, low = _shifts(order, ranks)
    above = (step_us * math.expm1(composition_error), *np.maximum(high, 0.0))
    below = (step_us * math.expm1(-composition_error), *np.minimum(low, 0.0))
    return from_shifts(step_us, below=below, above=above, least=step_us / 10)


def calls_half_width(step_us: float, order: Order, ranks: tuple[PricedRank, ...]) -> float:
    """Half-width in log time at 90 % that the bounds of the calls alone leave the step."""
    return step_interval(step_us, order, ranks, 0.0).half_width_log


def kind_shifts(order: Order, ranks: tuple[PricedRank, ...]) -> Mapping[CallKind, tuple[float, float]]:
    """Kind of call → the changes of the step time in µs at its lower and at its upper bound."""
    kinds, high, low = _shifts(order, ranks)
    return {kind: (float(below), float(above)) for kind, below, above in zip(kinds, low, high, strict=True)}


def _shifts(order: Order, ranks: tuple[PricedRank, ...]) -> tuple[Sequence[CallKind], Floats, Floats]:
    """The kinds of call, and the changes of the step time in µs when one kind of call at a time takes its upper bound,
    and its lower one, shape (kinds,)."""
    distinct = list({id(rank): rank for rank in ranks}.values())
    of_chunks = buckets_of(distinct_chunks(distinct)[0])
    buckets = [*of_chunks, *(bucket for rank in distinct for bucket in _at_end(rank))]
    spread = BucketTimes(list({id(bucket): bucket for bucket in buckets}.values()))
    whole = (_rank_ends(order, ranks, spread, spread.of(of_chunks)) + _after(ranks, spread)).max(axis=0)
    shifts = whole[1:] - whole[0]
    return spread.kinds, shifts[: len(spread.kinds)], shifts[len(spread.kinds) :]


def _at_end(rank: PricedRank) -> tuple[Bucket, ...]:
    """The work that a rank does once a step."""
    return rank.blocking_reduction, rank.gradient_reduction, rank.parameter_all_gather, rank.optimizer


def _rank_ends(order: Order, ranks: tuple[PricedRank, ...], spread: BucketTimes, of_chunks: Floats) -> Floats:
    """When each rank's pipeline is done in each case, shape (ranks, cases). Only the cases that change an action are played:
    `of_chunks` are the times of all the chunks' buckets, shape (buckets, cases)."""
    changed = np.flatnonzero((of_chunks != of_chunks[:, :1]).any(axis=0))
    played = [0, *changed.tolist()]
    times = chunk_times(ranks, order.placement, lambda buckets: spread.of(buckets)[:, played])
    ends = rank_ends(order, times)
    place = np.zeros(of_chunks.shape[1], dtype=np.intp)
    place[played] = np.arange(len(played))
    whole: Floats = ends[:, place]
    return whole


def _after(ranks: Sequence[PricedRank], spread: BucketTimes) -> Floats:
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


def _after_of_alike(ranks: Sequence[PricedRank], spread: BucketTimes) -> Floats:
    """`_after` of ranks that differ in their windows alone."""
    one = ranks[0]
    by_chunk = zip(*(rank.windows for rank in ranks), strict=True)
    windows = [(of_chunk[0][0], np.array([[window_us] for _, window_us in of_chunk])) for of_chunk in by_chunk]
    blocking, reduction, all_gather, optimizer = spread.of(_at_end(one))[:, np.newaxis]
    exposed: Floats = one.exposed_reduction_in(windows, reduction) + one.exposed_all_gather_of(all_gather)
    after: Floats = blocking + exposed + optimizer
    return after
