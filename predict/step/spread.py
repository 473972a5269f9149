"""Spread: the times of a step's work when one kind of call at a time takes its upper bound, and its lower one.

Errors of one kind of call (name and phase) move together, since one model predicts them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from predict.prices.price_list import Priced
from predict.step.priced_block import Bucket, PricedBlock, Units
from regressors.features.arrays import Floats

Kind = tuple[str, str]
COMMON_SHARE = 0.35
"""Share of an analytic call's half-width that is common to all calls of its kind: on public tables the bias of a kind on a GPU is about a
third of the spread of its shapes (products 3-5 of 16-22 %, attention 5-10 of 23-44 %)."""
FLOOR = ("host", "launch")
KEPT = 4096


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class OwnCases:
    """A time in µs at its median, then by `kinds` at their upper bounds, then at their lower ones."""

    kinds: tuple[Kind, ...]
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


def _in_cases_of(kinds: tuple[Kind, ...], own: OwnCases) -> Floats:
    """The time in the cases of more kinds, shape (cases,)."""
    if kinds == own.kinds:
        return own.values
    values = np.empty(1 + 2 * len(kinds))
    values[:] = own.values[0]
    values[_places(kinds, own.kinds)] = own.values[1:]
    return values


@lru_cache(maxsize=KEPT)
def _places(kinds: tuple[Kind, ...], some: tuple[Kind, ...]) -> NDArray[np.intp]:
    """The places of some kinds' cases among those of all: the upper bounds, then the lower ones."""
    upper = np.array([1 + kinds.index(kind) for kind in some], dtype=np.intp)
    return np.concatenate([upper, upper + len(kinds)])


def _kind(unit: Priced) -> Kind:
    return unit.call.NAME, unit.phase


class Spread:
    """The times of many buckets in all cases: the median, then each kind of call at its upper bound, then each at its lower."""

    def __init__(self, buckets: Sequence[Bucket]) -> None:
        own = [cases_of_bucket(bucket) for bucket in buckets]
        self.kinds = tuple(sorted(set().union(*(each.kinds for each in own))))
        self._values = np.array([_in_cases_of(self.kinds, each) for each in own])
        self._rows = {id(bucket): row for row, bucket in enumerate(buckets)}

    def of(self, buckets: Sequence[Bucket]) -> Floats:
        """Times in µs, shape (buckets, cases)."""
        return self._values[[self._rows[id(bucket)] for bucket in buckets]]
