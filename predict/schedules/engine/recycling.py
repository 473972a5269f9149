"""Timing many sets of times in rows that are used again: a row is free once no action waits for it any more.

Few rows are waited for at once, one or two per rank, so that they stay in the processor's cache, where every action's row would
be tens of megabytes for a deep pipeline.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from predict.schedules.engine.folding import last_copies, last_rows
from predict.schedules.engine.order import Folded
from predict.schedules.engine.positions import Indices
from predict.schedules.engine.program import KEPT, Program
from regressors.features.arrays import Floats
from sampling.files.machine_code import compiled

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
    place, count = compiled(_places)(program.previous, program.dependency, kept)
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


def _places(previous: Indices, dependency: Indices, kept: Indices) -> tuple[Indices, int]:
    """The place of each row, and how many there are; only worth it when compiled. A row's own place is taken before those that it
    is the last to wait for are given back, so that no action overwrites what it reads."""
    rows = len(previous) + 1
    last_use = np.zeros(rows, np.int64)
    for index in range(len(previous)):
        last_use[previous[index]] = last_use[dependency[index]] = index + 1
    last_use[0] = rows
    for row in kept:
        last_use[row] = rows
    place, given_back = np.zeros(rows, np.int64), np.empty(rows, np.int64)
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
    return place, count


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
