"""Exact timing of any order: each action starts when its rank is free and what it depends on has arrived.

    end(action) = max(end of the action before on the rank, end of its dependency + p2p if from another rank) + duration

With blocking sends the sender's rank is busy until the transfer is over: the p2p moves from the edge to the sender. Both
results of a pair are then sent one after the other, and have arrived when the second has.
Times are in any one unit, and so are the results. Every function raises ConfigError for an incomplete order or for
times of another shape or below 0, and InfeasibleError, naming the actions, for an order that deadlocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import NamedTuple
from weakref import WeakSet

import numpy as np

from predict.schedules.engine.compiled import pays
from predict.schedules.engine.costs import ChunkTimes, cell_durations, cost_table, edge_delays, sending
from predict.schedules.engine.folding import MadeWhenAsked, Pace, forms, last_copies, last_rows, pace_of
from predict.schedules.engine.order import Folded, Order
from predict.schedules.engine.positions import Indices
from predict.schedules.engine.program import Level, Program, compile_order, levels, lists
from predict.schedules.engine.recycling import ends_in_places
from predict.schedules.engine.timeline import Timeline, continued_timeline
from regressors.features.arrays import Floats
from sampling.files.machine_code import compiled

__all__ = ["ChunkTimes", "makespan", "makespans", "rank_ends", "simulate"]

TURNS_OF_A_LEVEL = 30
"""Turns of Python's loop that take as long as numpy's calls for a level."""
BLOCK_BYTES = 2**25
"""Bytes of times held at once in `makespans`, to bound the memory: 4 to 64 MiB are equally fast on p=16, m=256."""


def makespan(order: Order, times: ChunkTimes, *, blocking: bool = False) -> float:
    """End of the last action."""
    played = _play(order, times, blocking=blocking)
    return max(float(played.free[row]) for row in last_rows(played.program).tolist()) + played.later


def makespans(order: Order, times: ChunkTimes, *, blocking: bool = False) -> Floats:
    """The makespan under each of many sets of times, shape (sets,); equal to `makespan` of each to the bit."""
    latest: Floats = rank_ends(order, times, blocking=blocking).max(axis=0)
    return latest


def rank_ends(order: Order, times: ChunkTimes, *, blocking: bool = False) -> Floats:
    """When each rank is done under each of many sets of times, shape (ranks, sets)."""
    costs = cost_table(compile_order(next(forms(order)).short), times, blocking=blocking)
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


def simulate(order: Order, times: ChunkTimes, *, blocking: bool = False) -> Timeline:
    """When every action of the order runs."""
    played = _play(order, times, blocking=blocking)
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


def _play(order: Order, times: ChunkTimes, *, blocking: bool) -> _Played:
    """Play the shortest form of the order that stands for the whole under one set of times."""
    for form in forms(order):
        program = compile_order(form.short)
        delays = edge_delays(program, times.p2p)
        durations = cell_durations(program, times)
        busy = durations
        if blocking:
            busy, delays = _blocked(program, durations, delays)
        free = _free(program, delays, busy)
        pace = pace_of(form, np.reshape(free, (-1, 1))[last_copies(form, program)])
        if not np.isnan(pace.time[0]):
            break
    return _Played(form, program, delays, durations, free, pace)


def _blocked(program: Program, durations: list[float], delays: list[float]) -> tuple[list[float], list[float]]:
    """Durations with the time of the transfers in them, and edges without."""
    return (np.array(durations) + sending(program, np.array(delays))).tolist(), [0.0] * len(delays)


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
    """When each rank is done under each of many sets of times, shape (ranks, sets), and the ends of the last copies that tell a
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
