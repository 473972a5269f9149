"""V-half and V-min: a repeating block of six slots that bounds the memory, squeezed at its ends.

A microbatch takes four legs: forward down the ranks, forward back up, backward down, backward back up, each at a slot of
the block; the slots of following microbatches are six later, since a rank does six actions for each. W goes into idle
slots. The memory in the steady state follows from how long a microbatch stays on a rank, which the block decides. At the
start and the end, where slots are idle, legs move to earlier ones as long as the peak stays as it is.
"""

from bisect import insort
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from predict.schedules.building import schedule, two_chunks
from predict.schedules.engine.order import CHUNK, KIND, KINDS, MICROBATCH, ActionKind, Order, Rows, merge, rows, v_shape
from predict.schedules.engine.timing import ChunkTimes, simulate

PERIOD = 6
LEGS: tuple[tuple[ActionKind, int], ...] = (("F", 0), ("F", 1), ("B", 1), ("B", 0))
"""Kind and chunk of each leg."""
DOWN, UP, BACK_DOWN, BACK_UP, WEIGHT = range(5)
IDLE = -1
CONTROLLABLE_MEMORY = "Qi et al. 2024, Pipeline Parallelism with Controllable Memory, arXiv:2405.15362"
Block = Callable[[int, int], tuple[int, int, int, int]]
"""The slots of the first microbatch's legs, from ranks and rank."""


def v_half_block(ranks: int, rank: int) -> tuple[int, int, int, int]:
    shift = 3 if ranks % 2 == 0 else 0
    return 2 * rank, 3 * ranks - rank - 2, 3 * ranks + shift + 2 * rank - 1, 6 * ranks + shift - rank - 2


def v_min_block(ranks: int, rank: int) -> tuple[int, int, int, int]:
    shift = 2 if ranks % 3 == 0 else 0
    return rank, 2 * ranks - rank - 1, 2 * ranks + shift + rank, 4 * ranks + shift - rank - 1


@schedule(
    "v-half",
    citation=f"{CONTROLLABLE_MEMORY}, section 3.2",
    splits_backward=True,
    supports=two_chunks,
    placement=v_shape,
)
def v_half(ranks: int, chunks: int, microbatches: int) -> list[Rows]:
    """About half of the activations of 1F1B: p + 2 chunk activations of half a rank."""
    return _solve(v_half_block, ranks, microbatches)


@schedule(
    "v-min",
    citation=f"{CONTROLLABLE_MEMORY}, section 3.2",
    splits_backward=True,
    supports=two_chunks,
    placement=v_shape,
)
def v_min(ranks: int, chunks: int, microbatches: int) -> list[Rows]:
    """About a third of the activations of 1F1B, at most ⌈2p/3⌉ + 2 chunk activations; slower where stages are uneven."""
    return _solve(v_min_block, ranks, microbatches)


def _solve(block: Block, ranks: int, microbatches: int) -> list[Rows]:
    """Solve for as few microbatches as show the steady state, and repeat that for the others."""
    few = 3 * ranks + 4
    if microbatches <= few:
        return _solve_all(block, ranks, microbatches)
    return [_stretched(row, microbatches - few, few // 2) for row in _solve_all(block, ranks, few)]


def _stretched(row: Rows, more: int, middle: int) -> Rows:
    """The row with `more` microbatches inserted after number `middle`: from its F on chunk 0 to the next F, actions repeat."""
    first, last = (int(np.flatnonzero(_is(row, "F", 0))[microbatch]) for microbatch in (middle, middle + 1))
    period = np.tile(row[first:last], (more, 1))
    period[:, MICROBATCH] += np.repeat(np.arange(1, more + 1, dtype=np.int32), last - first)
    rest = row[last:].copy()
    rest[:, MICROBATCH] += more
    return np.concatenate([row[:last], period, rest])


def _solve_all(block: Block, ranks: int, microbatches: int) -> list[Rows]:
    legs = [
        [[first + PERIOD * microbatch for microbatch in range(microbatches)] for first in block(ranks, rank)]
        for rank in range(ranks)
    ]
    first = [_Rank(of_rank, weights=True) for of_rank in legs]
    _move_forward(first, warm_up=True)
    second = [_Rank(of_rank, weights=False) for of_rank in _squeezed(first)]
    _move_forward(second, warm_up=False)
    return [_rows(legs, _weights_by_chunk(legs)) for legs in _squeezed(second)]


class _Rank:
    """The slots of one rank's legs, by leg and microbatch, and which of them are fixed."""

    def __init__(self, legs: list[list[int]], *, weights: bool) -> None:
        self.slots = [list(leg) for leg in legs]
        if weights:
            self.slots.append(_weights(legs))
        self.fixed = [False] * (max(of_leg[-1] for of_leg in self.slots) + 2)
        self.backwards: list[int] = []
        """Slots of the fixed backward legs, ascending."""
        self.memory = _Memory(self.slots, len(self.fixed))

    def fix(self, leg: int, microbatch: int) -> None:
        slot = self.slots[leg][microbatch]
        self.fixed[slot] = True
        if leg in (BACK_DOWN, BACK_UP):
            insort(self.backwards, slot)

    def move(self, leg: int, microbatch: int, earliest: int, limit: int) -> None:
        """Move a leg to the first free slot from `earliest` on where the memory stays within the limit."""
        now = self.slots[leg][microbatch]
        for slot in range(max(earliest, self.memory.earliest(leg, now, limit)), now):
            if not self.fixed[slot] and self.memory.move(leg, now, slot, limit):
                self.slots[leg][microbatch] = slot
                return


class _Memory:
    """Chunk activations alive after each slot of a rank; where W has no slots of its own, it takes every idle one."""

    def __init__(self, slots: list[list[int]], size: int) -> None:
        self.weights_fill = len(slots) == WEIGHT
        self.leg = [IDLE] * size
        for leg, of_leg in enumerate(slots):
            for slot in of_leg:
                self.leg[slot] = leg
        self.live, self.pending = [0] * size, [0] * size
        self._replay(0, size, size)

    def peak(self) -> int:
        return max(self.live)

    def earliest(self, leg: int, now: int, limit: int) -> int:
        """A bound for the search: a forward cannot come before a slot that has no room for it."""
        if leg not in (DOWN, UP):
            return 0
        slot = now
        while slot > 0 and self.live[slot - 1] < limit:
            slot -= 1
        return slot

    def move(self, leg: int, now: int, slot: int, limit: int) -> bool:
        """Move what is at `now` to `slot` if no more than `limit` are alive then."""
        self.leg[now], self.leg[slot] = self.leg[slot], leg
        if self._replay(slot, now + 1, limit):
            return True
        self.leg[now], self.leg[slot] = leg, self.leg[now]
        self._replay(slot, now + 1, len(self.leg))
        return False

    def _replay(self, first: int, least: int, limit: int) -> bool:
        """Count again from slot `first` to `least`, and on until it comes out as before; whether within the limit."""
        live = self.live[first - 1] if first else 0
        pending = self.pending[first - 1] if first else 0
        for slot in range(first, len(self.leg)):
            leg = self.leg[slot]
            if leg in (DOWN, UP):
                live += 1
            elif leg in (BACK_DOWN, BACK_UP):
                pending += 1
            elif leg == WEIGHT or (self.weights_fill and pending):
                live -= 1
                pending -= 1
            if live > limit:
                return False
            if slot >= least and live == self.live[slot] and pending == self.pending[slot]:
                break
            self.live[slot], self.pending[slot] = live, pending
        return True


def _move_forward(ranks: list[_Rank], *, warm_up: bool) -> None:
    """Move legs to earlier slots, those of the steady state excepted, and of the warm-up unless `warm_up`."""
    limit = max(rank.memory.peak() for rank in ranks)
    events = sorted(
        (slot, rank, leg, microbatch)
        for rank, held in enumerate(ranks)
        for leg, of_leg in enumerate(held.slots)
        for microbatch, slot in enumerate(of_leg)
    )
    last = len(ranks[0].slots[DOWN]) - 1
    warming_up, steady = True, False
    for _, rank, leg, microbatch in events:
        here = ranks[rank]
        if warming_up and rank == 0 and leg == BACK_UP:
            warming_up, steady = False, True
        if not steady and (warm_up or not warming_up):
            here.move(leg, microbatch, _ready(ranks, rank, leg, microbatch), limit)
        if steady and leg == DOWN and microbatch == last:
            steady = False
        here.fix(leg, microbatch)


def _ready(ranks: list[_Rank], rank: int, leg: int, microbatch: int) -> int:
    """The slot after all that the leg waits for."""
    here = ranks[rank]
    waits = [here.slots[leg][microbatch - 1]] if microbatch else [IDLE]
    if leg == WEIGHT:
        waits.append(here.backwards[microbatch])
        return max(waits) + 1
    if leg > DOWN:
        waits.append(here.slots[leg - 1][microbatch])
    other = rank - 1 if leg in (DOWN, BACK_DOWN) else rank + 1
    if 0 <= other < len(ranks):
        waits.append(ranks[other].slots[leg][microbatch])
    return max(waits) + 1


def _weights(legs: list[list[int]]) -> list[int]:
    """The slots of W: each idle one while a backward waits for its W, then those after the last leg."""
    return sorted(slot for of_leg in _weights_by_chunk(legs) for slot in of_leg)


def _weights_by_chunk(legs: list[list[int]]) -> tuple[list[int], list[int]]:
    """The slots of W for the backward down and the backward up; of two that wait, the first comes first."""
    end = max(of_leg[-1] for of_leg in legs)
    backward = {slot: leg - BACK_DOWN for leg in (BACK_DOWN, BACK_UP) for slot in legs[leg]}
    busy = {slot for of_leg in legs for slot in of_leg}
    made: tuple[list[int], list[int]] = [], []
    pending = [0, 0]
    for slot in range(end + 1 + 2 * len(legs[DOWN])):
        if slot in backward:
            pending[backward[slot]] += 1
        elif slot not in busy and any(pending):
            which = 0 if pending[0] else 1
            made[which].append(slot)
            pending[which] -= 1
    return made


def _squeezed(ranks: list[_Rank]) -> list[list[list[int]]]:
    """The slots of all legs when every action starts as soon as it can, in the order that it has."""
    made = [_rows(rank.slots[:WEIGHT], _first_come(rank)) for rank in ranks]
    microbatches = len(ranks[0].slots[DOWN])
    order = Order(rows=tuple(made), microbatches=microbatches, placement=v_shape(len(ranks), 2))
    timeline = simulate(order, ChunkTimes(forward=1, backward_input=1, backward_weight=1))
    return [
        [starts[_is(row, kind, chunk)].astype(int).tolist() for kind, chunk in LEGS]
        for row, starts in zip(order.rows, timeline.start, strict=True)
    ]


def _is(row: Rows, kind: ActionKind, chunk: int) -> NDArray[np.bool_]:
    which: NDArray[np.bool_] = (row[:, KIND] == KINDS.index(kind)) & (row[:, CHUNK] == chunk)
    return which


def _first_come(rank: _Rank) -> tuple[list[int], list[int]]:
    """The slots of W by chunk where the k-th belongs to the k-th backward."""
    weights = rank.slots[WEIGHT] if len(rank.slots) > WEIGHT else _weights(rank.slots)
    of_leg: tuple[list[int], list[int]] = [], []
    backwards = sorted((slot, which) for which in (0, 1) for slot in rank.slots[BACK_DOWN + which])
    for slot, (_, which) in zip(weights, backwards, strict=True):
        of_leg[which].append(slot)
    return of_leg


def _rows(legs: list[list[int]], weights: tuple[list[int], list[int]]) -> Rows:
    microbatches = np.arange(len(legs[DOWN]))
    timed = [(rows(kind, microbatches, chunk), slots) for (kind, chunk), slots in zip(LEGS, legs, strict=True)]
    timed += [(rows("W", microbatches, LEGS[BACK_DOWN + which][1]), weights[which]) for which in (0, 1)]
    return merge(*timed)
