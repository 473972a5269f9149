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

Floats = NDArray[np.float64]
Kind = tuple[str, str]
COMMON_SHARE = 0.35
"""Share of an analytic call's half-width that is common to all calls of its kind: on public tables the bias of a kind on a GPU is about a
third of the spread of its shapes (products 3-5 of 16-22 %, attention 5-10 of 23-44 %)."""
FLOOR = ("host", "launch")
KEPT = 4096


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class BlockSpread:
    """A block's time in µs at its median, then by `kinds` at their upper bounds, then at their lower ones."""

    kinds: tuple[Kind, ...]
    values: Floats


@lru_cache(maxsize=KEPT)
def spread_of(block: PricedBlock) -> BlockSpread:
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
    return BlockSpread(kinds=kinds, values=block.value(pushed, floors))


def _kind(unit: Priced) -> Kind:
    return unit.call.NAME, unit.phase


class Spread:
    """The times of many buckets in all cases: the median, then each kind of call at its upper bound, then each at its lower."""

    def __init__(self, buckets: Sequence[Bucket]) -> None:
        blocks = {id(each.priced): each.priced for bucket in buckets for each in bucket.blocks}
        spreads = [spread_of(block) for block in blocks.values()]
        self.kinds = sorted(set().union(*(spread.kinds for spread in spreads)))
        of_blocks = self._of_blocks(spreads)
        place = {key: index for index, key in enumerate(blocks)}
        counts = np.zeros((len(buckets), len(blocks)))
        for row, bucket in enumerate(buckets):
            for each in bucket.blocks:
                counts[row, place[id(each.priced)]] += each.count
        self._values = np.maximum(counts @ of_blocks, 0.0)
        self._rows = {id(bucket): row for row, bucket in enumerate(buckets)}

    def _of_blocks(self, spreads: Sequence[BlockSpread]) -> Floats:
        """Times by block, shape (blocks, cases); a kind that a block has none of leaves it as it is."""
        column = {kind: index for index, kind in enumerate(self.kinds, start=1)}
        times = np.empty((len(spreads), 1 + 2 * len(self.kinds)))
        for row, spread in zip(times, spreads, strict=True):
            row[:] = spread.values[0]
            above = [column[kind] for kind in spread.kinds]
            row[[*above, *(index + len(self.kinds) for index in above)]] = spread.values[1:]
        return times

    def of(self, buckets: Sequence[Bucket]) -> Floats:
        """Times in µs, shape (buckets, cases)."""
        return self._values[[self._rows[id(bucket)] for bucket in buckets]]
