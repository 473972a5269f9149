"""Folding: a long order kept as a short one whose steady state is continued."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from predict.schedules.engine.order import CHUNK, KIND, MICROBATCH, PAIRED, Folded, Order, Rows
from predict.schedules.engine.program import KEPT, Program, compile_order
from regressors.features.arrays import Floats, Indices

Item = TypeVar("Item")
Number = TypeVar("Number", np.int32, np.float64)
GROWTH = 3
MOST_TOGETHER = 6
EVEN = 12
"""Longer forms lack a multiple of this many copies, which most numbers of copies up to MOST_TOGETHER divide."""
SAME = 1e-12
"""Share of the time so far by which copies may miss their pace, which is the rounding of sums of floats. An end many copies later
is off by at most this share times the copies so far."""


class MadeWhenAsked(Sequence[Item]):
    """A sequence whose items are made when they are first asked for, and kept."""

    def __init__(self, length: int, make: Callable[[int], Item]) -> None:
        self._length, self._make = length, make
        self._made: dict[int, Item] = {}

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Item]: ...
    def __getitem__(self, index: int | slice) -> Item | Sequence[Item]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(self._length))]
        place = range(self._length)[index]
        if place not in self._made:
            self._made[place] = self._make(place)
        return self._made[place]


def steady_state(order: Order, microbatches: int) -> Folded | None:
    """The steady state of an order that repeats itself every `microbatches`; None where the ranks share none.

    It is one on which the time of everything after it depends through the last copies alone, so that more copies shift all
    that follows by the same time once the copies come at a steady pace.
    """
    together = microbatches // order.placement.chain_count
    found = [_repetition(rows, len(rows) * together // order.share, together) for rows in order.rows]
    lengths = [len(rows) * together // order.share for rows in order.rows]
    copies = min((last - first) // length for (first, last), length in zip(found, lengths, strict=True))
    if copies < 1:
        return None
    folded = Folded(
        short=order,
        ends=tuple(last for _, last in found),
        lengths=tuple(lengths),
        copies=copies,
        together=together,
        reach=0,
    )
    reach = _reach(folded, compile_order(order))
    return replace(folded, reach=reach) if reach < copies else None


def _repetition(rows: Rows, length: int, together: int) -> tuple[int, int]:
    """First row and last + 1 of the longest stretch in which `length` actions repeat themselves."""
    first, last = longest_run(repeats(rows, length, together))
    return (first, last + length) if last > first else (0, 0)


def repeats(rows: Rows, shift: int, together: int) -> NDArray[np.bool_]:
    """Whether each action comes again `shift` actions later, for the microbatch `together` further."""
    now, later = rows[:-shift], rows[shift:]
    same: NDArray[np.bool_] = later[:, MICROBATCH] - now[:, MICROBATCH] == together
    for column in (KIND, CHUNK, PAIRED):
        same &= later[:, column] == now[:, column]
    return same


def longest_run(truths: NDArray[np.bool_]) -> tuple[int, int]:
    """First and last + 1 of the longest run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], truths, [False]]).astype(np.int8)))
    if not len(edges):
        return 0, 0
    longest = int(np.argmax(edges[1::2] - edges[::2]))
    return int(edges[2 * longest]), int(edges[2 * longest + 1])


def _reach(folded: Folded, program: Program) -> int:
    """See `Folded.reach`; as many as there are copies where something after the first ones waits for what was before them."""
    copy = _copies_of_rows(folded, program)
    waits_for = np.minimum(copy[program.dependency], copy[program.previous])
    waiting = copy[1:]
    furthest = np.zeros(folded.copies + 1, dtype=np.intp)
    inside = waiting >= 0
    np.maximum.at(furthest, waiting[inside], (waiting - waits_for)[inside])
    # the first copies wait for what was before the steady state, which says nothing of those that are put in
    for reach in range(1, folded.copies):
        if furthest[reach:].max() <= reach:
            return reach
    return folded.copies


def _copies_of_rows(folded: Folded, program: Program) -> Indices:
    """Copy of each row of the times: −1 before the steady state, `copies` after it, and for the start of the step, for which nothing
    ever waits in it."""
    copy = np.full(len(program.cell) + 1, -2, dtype=np.intp)
    copy[0] = folded.copies
    for rows, end, length in zip(program.rows, folded.ends, folded.lengths, strict=True):
        place = (np.arange(len(rows)) - end) // length + folded.copies
        copy[rows] = np.clip(place, -1, folded.copies)
    # a row before a pair has the copy of the pair
    before_pairs = np.flatnonzero(copy[program.previous] == -2)
    copy[program.previous[before_pairs]] = copy[before_pairs + 1]
    return copy


def continued(folded: Folded) -> Order:
    """The order that a shorter one stands for; its actions are written out when they are asked for."""
    short = folded.short
    microbatches = short.microbatches + folded.more * folded.together * short.placement.chain_count
    rows = MadeWhenAsked(short.ranks, lambda rank: with_copies(folded, rank, short.rows[rank], _a_copy_later(folded)))
    return replace(short, rows=rows, microbatches=microbatches, folded=folded)


def _a_copy_later(folded: Folded) -> Rows:
    shift = np.zeros(4, np.int32)
    shift[MICROBATCH] = folded.together
    return shift


def with_copies(
    folded: Folded, rank: int, values: NDArray[Number], shift: NDArray[Number] | float, together: int = 1
) -> NDArray[Number]:
    """Values by action of a rank of the short order, for the long one: what is there is repeated by `together` copies at a time, and
    has `shift` added once more a copy; so has what follows."""
    end, length = folded.ends[rank], folded.lengths[rank] * together
    block = values[end - length : end]
    steps = np.arange(together, folded.more + 1, together).reshape(-1, *[1] * block.ndim)
    copies = (block + steps * shift).reshape(-1, *block.shape[1:])
    whole = np.concatenate([values[:end], copies, values[end:] + folded.more * shift])
    return whole.astype(values.dtype, copy=False)


def forms(order: Order) -> Iterator[Folded]:
    """Shorter forms of an order, each with GROWTH times the copies of the one before; last the order itself, to which no copies
    are missing."""
    form = order.folded
    while form and form.more:
        yield form
        form = _grown(form)
    yield form or _whole(order)


@lru_cache(maxsize=KEPT)
def _whole(order: Order) -> Folded:
    """The order itself as its last form, one object for each order, so that what is compiled from it is found again."""
    return Folded(short=order, ends=(), lengths=(), copies=0, together=0, reach=0)


@lru_cache(maxsize=KEPT)
def _grown(folded: Folded) -> Folded:
    put_in = min((GROWTH - 1) * folded.copies, folded.more)
    put_in += (folded.more - put_in) % EVEN
    longer = continued(replace(folded, more=put_in))
    return replace(
        folded,
        short=replace(longer, rows=tuple(longer.rows), folded=None),
        ends=tuple(end + put_in * length for end, length in zip(folded.ends, folded.lengths, strict=True)),
        copies=folded.copies + put_in,
        more=folded.more - put_in,
    )


class Pace(NamedTuple):
    """The distances of the copies of a steady state under each set of times, shape (sets,)."""

    time: Floats
    """Time from a copy to the next on the mean; NaN where the last copies do not come at one pace on all ranks."""
    together: Indices
    """Copies after which all comes again."""


def pace_of(folded: Folded, times: Floats) -> Pace:
    """The pace of further copies, from the times of the last ones (`last_copies`), shape (copies, actions, sets).

    There is one where each of the last `reach` copies is later than the one some copies before by the same time in all its
    actions. Then so are all further ones: an action starts at the latest of two times from `reach` copies back at most.
    That some copies can be needed for it: Cohen et al. 1985, IEEE Transactions on Automatic Control 30(3).
    """
    sets = times.shape[2]
    time, found = np.full(sets, 0.0 if not folded.more else np.nan), np.ones(sets, dtype=np.intp)
    if not folded.more:
        return Pace(time, found)
    margin = SAME * times.max(axis=(0, 1))
    for together in range(1, min(MOST_TOGETHER, len(times) - folded.reach) + 1):
        if folded.more % together == 0:
            later = times[-folded.reach :] - times[-folded.reach - together : len(times) - together]
            steady = np.isnan(time) & (np.abs(later - later[-1, 0]) <= margin).all(axis=(0, 1))
            time, found = np.where(steady, later[-1, 0] / together, time), np.where(steady, together, found)
            if not np.isnan(time).any():
                break
    return Pace(time, found)


@lru_cache(maxsize=KEPT)
def last_rows(program: Program) -> Indices:
    """Row of each rank's last action."""
    return np.array([rows[-1] for rows in program.rows])


@lru_cache(maxsize=KEPT)
def last_copies(folded: Folded, program: Program) -> Indices:
    """Rows of the times of the last copies that show a pace, shape (copies, actions); none where no copies are missing."""
    if not folded.more:
        return np.empty((0, 0), dtype=np.intp)
    count = min(folded.copies, folded.reach + MOST_TOGETHER)
    of_ranks = [
        rows[end - count * length : end].reshape(count, length)
        for rows, end, length in zip(program.rows, folded.ends, folded.lengths, strict=True)
    ]
    return np.concatenate(of_ranks, axis=1)
