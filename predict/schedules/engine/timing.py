"""Exact timing of any order: each action starts when its rank is free and what it depends on has arrived.

    end(action) = max(end of the action before on the rank, end of its dependency + p2p if from another rank) + duration

Times are in any one unit, and so are the results. Every function raises ConfigError for an incomplete order or for
times of another shape or below 0, and InfeasibleError, naming the actions, for an order that deadlocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple
from weakref import WeakSet

import numpy as np
from numpy.typing import ArrayLike, NDArray

from predict.schedules.engine.costs import ChunkTimes, cost_table, costs_of
from predict.schedules.engine.folding import MadeWhenAsked, Pace, forms, last_copies, last_rows, pace_of, with_copies
from predict.schedules.engine.order import CHUNK, CODE, KIND, Folded, Order, Rows
from predict.schedules.engine.program import KEPT, Level, Program, compile_order, levels, lists
from regressors.features.arrays import Floats, Indices
from sampling.files.machine_code import compiled, pays

# Timing many sets of times in rows that are used again: a row is free once no action waits for it any more.
#
# Few rows are waited for at once, one or two per rank, so that they stay in the processor's cache, where every action's row would
# be tens of megabytes for a deep pipeline.

CACHED_BYTES = 2**19
"""Bytes of times held at once, of the 1 to 2 MiB that a core's cache has."""
LANES = 16
"""Sets that the compiled loop takes in one turn, four vectors of four; a rest of fewer it takes one by one."""


Short = NDArray[np.int32]
"""Indices of half the size: those of a deep pipeline are read from memory, which is what its loop waits for."""


class Recycled(NamedTuple):
    """A program's actions by the places of their rows. Place 0 is the start of the step; rows that are asked for keep theirs."""

    places: int
    previous: Short
    dependency: Short
    own: Short
    edge: Short
    cell: Short
    ends: Indices
    """Place of each rank's last action."""
    copies: Indices
    """Places of the last copies, as `last_copies` has their rows."""


def ends_in_places(form: Folded, program: Program, costs: Floats) -> tuple[Floats, Floats]:
    """When each rank is done under each set of times, shape (ranks, sets), and the ends of the last copies, shape (copies,
    actions, sets); `costs` as `cost_table` has them. Needs numba."""
    recycled = _recycled(form, program)
    sets = costs.shape[1]
    ends, copies = np.empty((program.ranks, sets)), np.empty((*recycled.copies.shape, sets))
    block = max(1, CACHED_BYTES // (costs.itemsize * recycled.places * LANES)) * LANES
    indices = recycled.previous, recycled.dependency, recycled.own, recycled.edge, recycled.cell
    for first in range(0, sets, block):
        count = min(block, sets - first)
        some = np.zeros((len(costs), -(-count // LANES) * LANES))
        some[:, :count] = costs[:, first : first + count]
        free = np.zeros((recycled.places, some.shape[1]))
        compiled(_run_in_places)(free, *indices, some[: program.depth], some[program.depth :])
        ends[:, first : first + count] = free[recycled.ends, :count]
        copies[..., first : first + count] = free[recycled.copies, :count]
    return ends, copies


@lru_cache(maxsize=KEPT)
def _recycled(form: Folded, program: Program) -> Recycled:
    last, copies = last_rows(program), last_copies(form, program)
    kept = np.concatenate([last, copies.ravel()])
    place, last_use, given_back = np.zeros((3, len(program.previous) + 1), np.int64)
    count = compiled(_places)(place, last_use, given_back, program.previous, program.dependency, kept)
    return Recycled(
        places=int(count),
        previous=place[program.previous].astype(np.int32),
        dependency=place[program.dependency].astype(np.int32),
        own=place[1:].astype(np.int32),
        edge=program.edge.astype(np.int32),
        cell=program.cell.astype(np.int32),
        ends=place[last],
        copies=place[copies],
    )


def _places(
    place: Indices,
    last_use: Indices,
    given_back: Indices,
    previous: Indices,
    dependency: Indices,
    kept: Indices,
) -> int:
    """Number of places, and the place of each row filled in; only worth it when compiled. A row's own place is taken before those that it
    is the last to wait for are given back, so that no action overwrites what it reads."""
    rows = len(place)
    for index in range(len(previous)):
        last_use[previous[index]] = last_use[dependency[index]] = index + 1
    last_use[0] = rows
    for row in kept:
        last_use[row] = rows
    count, waiting = 1, 0
    for index in range(len(previous)):
        if waiting:
            waiting -= 1
            place[index + 1] = given_back[waiting]
        else:
            place[index + 1] = count
            count += 1
        before, needed = previous[index], dependency[index]
        if last_use[before] == index + 1:
            given_back[waiting] = place[before]
            waiting += 1
        if needed != before and last_use[needed] == index + 1:
            given_back[waiting] = place[needed]
            waiting += 1
    return count


def _run_in_places(
    free: Floats,
    previous: Short,
    dependency: Short,
    own: Short,
    edge: Short,
    duration_of: Short,
    delays: Floats,
    durations: Floats,
) -> None:
    """Fill in, action by action, when the rank is free again under each set; only worth it when compiled."""
    for index in range(len(previous)):
        before, needed, place = previous[index], dependency[index], own[index]
        over, cell = edge[index], duration_of[index]
        for which in range(free.shape[1]):
            ready = free[before, which]
            arrived = free[needed, which] + delays[over, which]
            free[place, which] = (ready if ready > arrived else arrived) + durations[cell, which]


# The timeline of an order: when each action runs, and the bubble and memory that follow from it.

ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Timeline:
    """Start and end of every action, by rank in the order of `order.actions`, in the unit of the times given.

    The step starts at 0. A transfer is not part of an action, whether or not the sender waits for it.
    """

    order: Order
    start: Sequence[Floats]
    end: Sequence[Floats]
    rank_ends: Floats
    """End of each rank's last action."""
    form: Folded | None = None
    """The shorter form of a folded order that was timed; None where every action was."""
    short: Timeline | None = None
    """The timeline of that form: what is before the further copies runs when it does there, what is after them `later` later."""
    later: float = 0.0

    @property
    def core(self) -> Timeline:
        """The shorter timeline, or this one where there is none."""
        return self.short or self

    @property
    def makespan(self) -> float:
        """End of the last action."""
        return float(self.rank_ends.max())

    @property
    def busy(self) -> Floats:
        """Time that each rank computes."""
        lasting = [end - start for start, end in zip(self.core.start, self.core.end, strict=True)]
        busy: Floats = np.array([of_rank.sum() for of_rank in lasting])
        if self.form is not None:
            copies = zip(lasting, self.form.ends, self.form.lengths, strict=True)
            busy += self.form.more * np.array([of_rank[end - length : end].sum() for of_rank, end, length in copies])
        return busy

    @property
    def span(self) -> Floats:
        """Time of each rank from the start of its first action to the end of its last."""
        begins: Floats = np.array([start[0] for start in self.core.start])
        return self.rank_ends - begins

    @property
    def bubble_fraction(self) -> float:
        """1 − mean busy time / makespan: the share of all ranks' time that is idle."""
        return _missing(self.busy.mean(), self.makespan)

    @property
    def span_bubble_fraction(self) -> float:
        """1 − busiest rank's time / longest span: the bubble rate of Qi et al. 2024 (arXiv:2401.10241) for ZB-H2 and ZB-auto.

        Steps that follow each other without a gap can hide the difference between makespan and span.
        """
        return _missing(self.busy.max(), self.span.max())

    def when(self, rank: int, index: int) -> tuple[float, float]:
        """Start and end of one action, by its place in the order."""
        form = self.form
        if form is None or index < form.ends[rank]:
            return float(self.core.start[rank][index]), float(self.core.end[rank][index])
        missing = form.more * form.lengths[rank]
        if index < form.ends[rank] + missing:
            return float(self.start[rank][index]), float(self.end[rank][index])
        start, end = (float(of[rank][index - missing]) for of in (self.core.start, self.core.end))
        return start + self.later, end + self.later

    def peak_chunks(self, released_by_b: float = 0.0) -> tuple[int, ...]:
        """Most chunks whose activations are alive at once on each rank, rounded up."""
        return tuple(math.ceil(alive(row, released_by_b).max() - ROUNDING) for row in self.core.order.rows)

    def peak_bytes(self, chunk_bytes: ArrayLike) -> tuple[float, ...]:
        """Most bytes of activations alive at once on each rank; `chunk_bytes` is one number, or of shape (ranks, chunks)."""
        sizes = np.broadcast_to(np.asarray(chunk_bytes, dtype=float), (self.order.ranks, self.order.chunks))
        return tuple(
            float(alive(row, sizes=of_rank).max()) for row, of_rank in zip(self.core.order.rows, sizes, strict=True)
        )


def continued_timeline(order: Order, form: Folded, short: Timeline, pace: Pace) -> Timeline:
    """The timeline of a folded order from the timeline of one of its forms, whose further copies come at this pace."""
    time, together = float(pace.time[0]), int(pace.together[0])
    return Timeline(
        order=order,
        start=MadeWhenAsked(order.ranks, lambda rank: with_copies(form, rank, short.start[rank], time, together)),
        end=MadeWhenAsked(order.ranks, lambda rank: with_copies(form, rank, short.end[rank], time, together)),
        rank_ends=short.rank_ends + form.more * time,
        form=form,
        short=short,
        later=form.more * time,
    )


def alive(row: Rows, released_by_b: float = 0.0, sizes: ArrayLike = 1.0) -> Floats:
    """After each action of a rank, the chunk activations alive, or their bytes if `sizes` has those of each chunk.

    They live from the start of the F to the end of the BW. Where the backward is split, W releases them, since the
    gradient of the weights still needs them, except the share that B releases.
    """
    change = np.zeros(len(CODE))
    change[[CODE[kind] for kind in ("F", "B", "W", "BW")]] = 1, -released_by_b, released_by_b - 1, -1
    size = np.asarray(sizes, dtype=float)
    return np.cumsum(change[row[:, KIND]] * (size[row[:, CHUNK]] if size.ndim else size))


def _missing(busy: float, total: float) -> float:
    """1 − busy / total, rounding below 0 off; nothing is missing from no time at all."""
    return max(0.0, float(1 - busy / total)) if total > 0 else 0.0


__all__ = ["ChunkTimes", "makespan", "makespans", "rank_ends", "simulate"]

TURNS_OF_A_LEVEL = 30
"""Turns of Python's loop that take as long as numpy's calls for a level."""
BLOCK_BYTES = 2**25
"""Bytes of times held at once in `makespans`, to bound the memory: 4 to 64 MiB are equally fast on p=16, m=256."""


def makespan(order: Order, times: ChunkTimes) -> float:
    """End of the last action."""
    played = _play(order, times)
    return max(float(played.free[row]) for row in last_rows(played.program).tolist()) + played.later


def makespans(order: Order, times: ChunkTimes) -> Floats:
    """The makespan under each of many sets of times, shape (sets,); equal to `makespan` of each to the bit."""
    latest: Floats = rank_ends(order, times).max(axis=0)
    return latest


def rank_ends(order: Order, times: ChunkTimes) -> Floats:
    """When each rank is done under each of many sets of times, shape (ranks, sets)."""
    costs = cost_table(compile_order(next(forms(order)).short), times)
    ends = np.empty((order.ranks, costs.shape[1]))
    left = np.arange(costs.shape[1])
    for form in forms(order):
        free, copies = _free_of_sets(form, compile_order(form.short), costs[:, left])
        time = pace_of(form, copies).time
        ends[:, left] = free + form.more * time
        left = left[np.isnan(time)]
        if not len(left):
            break
    return ends


def simulate(order: Order, times: ChunkTimes) -> Timeline:
    """When every action of the order runs."""
    played = _play(order, times)
    program, free, delays = played.program, np.asarray(played.free), np.array(played.delays)
    durations = np.array(played.durations)

    def starts_of(actions: Indices | slice) -> Floats:
        arrived = free[program.dependency[actions]] + delays[program.edge[actions]]
        earliest: Floats = np.maximum(free[program.previous[actions]], arrived)
        return earliest

    @cache
    def starts() -> Floats:
        return starts_of(slice(None))

    @cache
    def ends() -> Floats:
        """When the actions are done, where `free` has when the rank is, after any send that it waits for."""
        done: Floats = starts() + durations[program.cell]
        return done

    last = last_rows(program) - 1
    timeline = Timeline(
        order=played.form.short,
        start=MadeWhenAsked(program.ranks, lambda rank: starts()[program.rows[rank] - 1]),
        end=MadeWhenAsked(program.ranks, lambda rank: ends()[program.rows[rank] - 1]),
        rank_ends=starts_of(last) + durations[program.cell[last]],
    )
    return continued_timeline(order, played.form, timeline, played.pace) if played.form.more else timeline


class _Played(NamedTuple):
    """The times of a form of an order that stands for the whole: the last copies come at a steady pace, or none are missing."""

    form: Folded
    program: Program
    delays: list[float]
    durations: list[float]
    """Duration of each cell, without the sends that a rank waits for."""
    free: Sequence[float] | Floats
    pace: Pace

    @property
    def later(self) -> float:
        """Time by which what follows the steady state is later than in the form."""
        return self.form.more * float(self.pace.time[0])


def _play(order: Order, times: ChunkTimes) -> _Played:
    """Play the shortest form of the order that stands for the whole under one set of times."""
    for form in forms(order):
        program = compile_order(form.short)
        delays, durations, busy = costs_of(program, times)
        free = _free(program, delays, busy)
        pace = pace_of(form, np.reshape(free, (-1, 1))[last_copies(form, program)])
        if not np.isnan(pace.time[0]):
            break
    return _Played(form, program, delays, durations, free, pace)


def _free(program: Program, delays: list[float], durations: list[float]) -> Sequence[float] | Floats:
    """Time at which the rank is free again after each row, under one set of times."""
    rows = len(program.cell)
    if _pays(program):
        free = np.zeros(rows + 1)
        indices = program.previous, program.dependency, program.edge, program.cell
        compiled(_run)(free, *indices, np.array(delays), np.array(durations))
        return free
    as_list = [0.0] * (rows + 1)
    _run(as_list, *lists(program), delays, durations)
    return as_list


_timed: WeakSet[Program] = WeakSet()


def _pays(program: Program) -> bool:
    again = program in _timed
    _timed.add(program)
    return pays(len(program.cell), again=again)


def _run(
    free: list[float],
    previous: Iterable[int],
    dependency: Iterable[int],
    edge: Iterable[int],
    duration_of: Iterable[int],
    delays: Sequence[float],
    durations: Sequence[float],
) -> None:
    """Fill in, by row, when the rank is free again; row 0 is the start of the step."""
    steps = zip(previous, dependency, edge, duration_of)  # noqa: B905 - numba's zip has no strict
    for row, (before, needed, over, index) in enumerate(steps, 1):
        ready = free[before]
        arrived = free[needed] + delays[over]
        free[row] = (ready if ready > arrived else arrived) + durations[index]


def _free_of_sets(form: Folded, program: Program, costs: Floats) -> tuple[Floats, Floats]:
    """When each rank is done under each of many sets of times, shape (ranks, sets), and the ends of the last copies that show a
    pace, shape (copies, actions, sets). `costs` has the edges' delays with the cells' durations below."""
    steps = levels(program)
    if pays(TURNS_OF_A_LEVEL * len(steps), again=program in _timed):
        return ends_in_places(form, program, costs)
    last, copies = last_rows(program), last_copies(form, program)
    block = max(1, BLOCK_BYTES // (costs.itemsize * len(program.cell)))
    found = []
    for first in range(0, costs.shape[1], block):
        free = _run_sets(steps, len(program.cell), np.ascontiguousarray(costs[:, first : first + block]))
        found.append((free[last], free[copies]))
    ends, of_copies = zip(*found, strict=True)
    return np.concatenate(ends, axis=-1), np.concatenate(of_copies, axis=-1)


def _run_sets(steps: Sequence[Level], actions: int, costs: Floats) -> Floats:
    """`_run` for many sets of times, one level of actions at a time; shape (rows, sets)."""
    sets = costs.shape[1]
    free = np.empty((actions + 1, sets))
    free[0] = 0.0
    scratch: dict[int, tuple[Floats, ...]] = {}
    for first, last, waiting, costing in steps:
        size = last - first
        views = scratch.get(size)
        if views is None:
            waits, cost = np.empty((2, 2 * size, sets))
            views = scratch[size] = (waits, cost, waits[:size], waits[size:], cost[:size], cost[size:])
        waits, cost, arrived, ready, delay, duration = views
        # The indices are in range by construction; mode "clip" spares numpy the copy that a check of them needs.
        free.take(waiting, 0, waits, "clip")
        costs.take(costing, 0, cost, "clip")
        np.add(arrived, delay, arrived)
        np.maximum(arrived, ready, out=arrived)
        np.add(arrived, duration, free[first:last])
    return free
