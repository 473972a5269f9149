"""Pieces of an action: its operators one after the other, and the communication that overlaps with them on streams of its own.

A block's operators run in the order of its calls. Communication that is not hidden makes compute wait, and ends when the wait does;
what is hidden of it lies before, during the compute. So the compute stream's pieces and waits add up to the action.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import floor

from predict.prices.price_list import Prices
from predict.step.breakdown import Item, items_of_block
from predict.step.priced_block import Bucket, PricedBlock

COMPUTE = "compute"


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """An item on a stream, from `start_us` after the action's start. `wait_us` is the time for which compute waits for it."""

    stream: str
    start_us: float
    time_us: float
    wait_us: float
    item: Item

    @property
    def end_us(self) -> float:
        return self.start_us + self.time_us


@dataclass(slots=True)
class Pieces:
    """The pieces of buckets, each bucket's made once."""

    prices: Prices
    _items: dict[PricedBlock, tuple[Item, ...]] = field(default_factory=dict)
    _known: dict[Bucket, tuple[Piece, ...]] = field(default_factory=dict)

    def of(self, bucket: Bucket) -> tuple[Piece, ...]:
        """The pieces of a bucket; the last one ends no later than its median."""
        if bucket not in self._known:
            self._known[bucket] = tuple(self._laid_out(bucket))
        return self._known[bucket]

    def _laid_out(self, bucket: Bucket) -> Iterator[Piece]:
        now, free = 0.0, dict[str, float]()
        for repeated in bucket.blocks:
            for share in _runs(repeated.count):
                for item in self._block(repeated.priced):
                    piece = _piece(item, share, now, free)
                    now += share * item.time_us
                    yield piece

    def _block(self, block: PricedBlock) -> tuple[Item, ...]:
        if block not in self._items:
            self._items[block] = items_of_block(block, self.prices)
        return self._items[block]


def _runs(count: float) -> Iterator[float]:
    """1 for each whole run of a block, and the rest."""
    yield from [1.0] * floor(count)
    if count - floor(count) > 1e-9:
        yield count - floor(count)


def _piece(item: Item, share: float, now: float, free: dict[str, float]) -> Piece:
    """The item at `now`; `free` is when each stream of communication is free again."""
    time_us = share * item.time_us
    if not item.beside:
        return Piece(stream=COMPUTE, start_us=now, time_us=time_us, wait_us=0.0, item=item)
    end = now + time_us
    start = min(end, max(end - share * item.alone_us, free.get(item.heading, 0.0)))
    free[item.heading] = end
    return Piece(stream=item.heading, start_us=start, time_us=end - start, wait_us=time_us, item=item)


def scaled(pieces: tuple[Piece, ...], factor: float) -> tuple[Piece, ...]:
    """The pieces in an action that takes `factor` times as long, as one of a pair does."""
    if factor == 1:
        return pieces
    return tuple(
        replace(each, start_us=each.start_us * factor, time_us=each.time_us * factor, wait_us=each.wait_us * factor)
        for each in pieces
    )
