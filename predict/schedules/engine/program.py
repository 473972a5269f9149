"""An order compiled once into flat indices, so that timing it is one pass over numbers."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from predict.schedules.engine.order import CODE, KINDS, Order, Placement, Positions, locate
from regressors.features.arrays import Indices
from sampling.errors import InfeasibleError
from sampling.files.machine_code import compiled, pays

NONE = -1
KEPT = 128
"""Programs kept: a search asks for an order with many sets of times in a row, and for few orders at a time."""


class Level(NamedTuple):
    """Actions that wait for none of each other: rows `first` to `last` of the times, and what they are made of.

    `waits`: rows of the dependencies, then of the actions before on the ranks. `costs`: edges, then durations, as rows
    of a table of the edges' delays with the cells' durations below. A named tuple, since unpacking one is quick.
    """

    first: int
    last: int
    waits: Indices
    costs: Indices


@dataclass(frozen=True, kw_only=True, slots=True, eq=False, weakref_slot=True)
class Program:
    """The actions of an order in an order of execution, by rows of a column of times.

    Row 0 is the start of the step, row i the i-th action. A cell is a kind, rank and chunk: actions of one cell take
    equally long. Edge 0 joins nothing, edge s + 1 joins stages s and s + 1 where they are on two ranks.

    Before a pair stands a row that takes no time and waits for what the backward of the pair needs; the forward hands
    over its result when the whole pair is done. The cells of a pair follow those of single actions: the row before,
    the forward by rank and chunk, the backward by rank, chunk and the forward's chunk.
    """

    ranks: int
    chunks: int
    depth: int
    """Stages of a chain."""
    paired: bool
    """Whether there are pairs."""
    rows: tuple[Indices, ...]
    """Rows of each rank's actions."""
    previous: Indices
    """Row of the action before on the same rank, 0 for none. This and the next three are indexed by row − 1."""
    dependency: Indices
    """Row of the action whose result it needs, 0 for none."""
    edge: Indices
    """Edge over which that result comes."""
    cell: Indices
    """Cell of the action."""
    sends: Indices
    """The two edges over which results of a cell go when it is done, 0 for none; indexed by cell."""
    level: Indices
    """Level of the action: the most steps from any action without a predecessor. Indexed by row − 1."""


@lru_cache(maxsize=KEPT)
def compile_order(order: Order) -> Program:
    """Compile an order. ConfigError if it is not complete, InfeasibleError naming who waits for whom if it stalls."""
    where = locate(order)
    edges = _edges(order.placement)
    listing = _listing(order, where, edges)
    level = _levels(order, listing)
    by_level = np.argsort(level, kind="stable")
    row = np.empty(len(level) + 1, dtype=np.intp)
    row[by_level] = np.arange(1, len(level) + 1)
    row[NONE] = 0  # no action ends at the start of the step
    previous = np.arange(-1, len(level) - 1)
    previous[listing.starts[:-1]] = NONE
    actions = row.take(listing.actions)
    return Program(
        ranks=order.ranks,
        chunks=order.chunks,
        depth=order.placement.depth,
        paired=len(level) > len(where.cell),
        rows=tuple(actions[first:last] for first, last in pairwise(where.starts.tolist())),
        previous=row.take(previous.take(by_level)),
        dependency=row.take(listing.dependency.take(by_level)),
        edge=listing.edge.take(by_level),
        cell=listing.cell.take(by_level),
        sends=_sends(order, edges, paired=len(level) > len(where.cell)),
        level=level.take(by_level),
    )


@lru_cache(maxsize=KEPT)
def lists(program: Program) -> tuple[list[int], list[int], list[int], list[int]]:
    """Previous, dependency, edge and cell as Python's own numbers, which its loops take in faster."""
    return program.previous.tolist(), program.dependency.tolist(), program.edge.tolist(), program.cell.tolist()


@lru_cache(maxsize=KEPT)
def levels(program: Program) -> tuple[Level, ...]:
    """The program cut into levels, for timing many sets of times at once."""
    bounds = np.searchsorted(program.level, np.arange(program.level[-1] + 2)).tolist()
    waits = np.array([program.dependency, program.previous], dtype=np.intp)
    costs = np.array([program.edge, program.cell + program.depth], dtype=np.intp)
    return tuple(
        Level(first + 1, last + 1, waits[:, first:last].ravel(), costs[:, first:last].ravel())
        for first, last in pairwise(bounds)
    )


class _Edges(NamedTuple):
    """Who sends to whom: by rank · chunks + chunk, the holder of the stage before and after (in the same count, −1 for
    none) and the edges to them (0 where there is none or it is on the same rank)."""

    before: Indices
    after: Indices
    up: Indices
    down: Indices


@lru_cache(maxsize=KEPT)
def _edges(placement: Placement) -> _Edges:
    ranks, chunks = len(placement.stages), len(placement.chains)
    holders = placement.holders()
    table = np.full((4, ranks * chunks), NONE, dtype=np.intp)
    table[2:] = 0
    for (chain, stage), (rank, chunk) in holders.items():
        at = rank * chunks + chunk
        for side, other, edge in ((0, stage - 1, stage), (1, stage + 1, stage + 1)):
            holder = holders.get((chain, other))
            if holder:
                table[side, at] = holder[0] * chunks + holder[1]
                # Between two stages of the same rank nothing is sent.
                table[2 + side, at] = edge if holder[0] != rank else 0
    return _Edges(*table)


class _Listing(NamedTuple):
    """Actions rank after rank, those before pairs among them; `actions` says which are real."""

    starts: Indices
    dependency: Indices
    edge: Indices
    cell: Indices
    actions: Indices


def _listing(order: Order, where: Positions, edges: _Edges) -> _Listing:
    dependency = _dependencies(order, where, edges)
    receives = np.concatenate([edges.up, edges.down, np.zeros_like(edges.up), edges.down])
    edge = receives.take(where.cell)
    first = np.flatnonzero(where.paired)[::2]
    if not len(first):
        return _Listing(where.starts, dependency, edge, where.cell, np.arange(len(where.cell)))
    return _with_pairs(order, where, dependency, edge, first)


def _with_pairs(order: Order, where: Positions, dependency: Indices, edge: Indices, first: Indices) -> _Listing:
    """Put a row before each pair, whose forward is at `first`."""
    second = first + 1
    size = order.ranks * order.chunks
    singles = len(KINDS) * size
    cell = where.cell.copy()
    cell[first] += singles + 1  # the forwards of pairs lie one cell after all single ones
    ahead = where.chunk[first]
    cell[second] = singles + 1 + size + (where.cell[second] - CODE["BW"] * size) * order.chunks + ahead
    # What a paired forward sends, and the gradients of its microbatch, come when the pair is done.
    handed_over = np.arange(len(where.cell) + 1)
    handed_over[NONE] = NONE
    handed_over[first] = second
    moved = np.arange(len(where.cell)) + np.searchsorted(first, np.arange(len(where.cell)), side="right")
    place = np.append(moved, NONE)
    total = len(where.cell) + len(first)
    waits, over, cells = (np.empty(total, dtype=np.intp) for _ in range(3))
    waits[moved], over[moved], cells[moved] = place[handed_over[dependency]], edge, cell
    gate = moved[first] - 1
    waits[gate], over[gate], cells[gate] = waits[moved[second]], edge[second], singles
    starts = where.starts + np.searchsorted(first, where.starts)
    return _Listing(starts, waits, over, cells, moved)


def _dependencies(order: Order, where: Positions, edges: _Edges) -> Indices:
    """Index of the action whose result each action needs, −1 for none.

    F needs the F of the stage before; B and BW the backward of the stage after, on the last stage their own F; W its B.
    """
    size = order.ranks * order.chunks
    places = np.arange(size)
    forward, backward, weight, whole = (CODE[kind] * size for kind in ("F", "B", "W", "BW"))
    source = np.empty(len(KINDS) * size, dtype=np.intp)
    source[forward : forward + size] = np.where(edges.before == NONE, NONE, forward + edges.before)
    after = np.where(edges.after == NONE, forward + places, backward + edges.after)
    source[backward : backward + size] = source[whole : whole + size] = after
    source[weight : weight + size] = backward + places
    # Whichever form the backward has, its result is found at B.
    of = where.of.reshape(len(KINDS), -1).copy()
    of[CODE["B"]] = np.maximum(of[CODE["B"]], of[CODE["BW"]])
    needs = source.take(where.cell)
    found = of.ravel().take(needs * order.share + where.microbatch, mode="clip")
    found[needs == NONE] = NONE
    return found


def _sends(order: Order, edges: _Edges, *, paired: bool) -> Indices:
    none = np.zeros_like(edges.up)
    single = np.concatenate([edges.down, edges.up, none, edges.up])
    singles = np.stack([single, np.zeros_like(single)], axis=1)
    if not paired:
        return singles
    gradients = np.repeat(edges.up, order.chunks)
    results = np.repeat(edges.down.reshape(order.ranks, 1, order.chunks), order.chunks, axis=1).ravel()
    nothing = np.zeros((1 + len(none), 2), dtype=np.intp)
    return np.concatenate([singles, nothing, np.stack([gradients, results], axis=1)])


def _levels(order: Order, listing: _Listing) -> Indices:
    """Level of each row, one more than the highest level that it waits for. InfeasibleError for a deadlock."""
    total = int(listing.starts[-1])
    if pays(total):
        level, behind = np.full(total, NONE), np.full(order.ranks, NONE)
        cursor, able = listing.starts[:-1].copy(), np.arange(order.ranks)
        compiled(_sweep)(level, cursor, listing.starts, listing.dependency, able, behind)
    else:
        reached, at = [NONE] * total, listing.starts[:-1].tolist()
        ranks = range(order.ranks)
        _sweep(reached, at, listing.starts.tolist(), listing.dependency.tolist(), [*ranks], [NONE for _ in ranks])
        level, cursor = np.array(reached, dtype=np.intp), np.array(at)
    stuck = np.flatnonzero(cursor < listing.starts[1:])
    if len(stuck):
        raise InfeasibleError(_stall(order, listing, {int(rank): int(cursor[rank]) for rank in stuck}))
    return level


def _sweep(
    level: list[int], cursor: list[int], starts: list[int], dependency: list[int], able: list[int], behind: list[int]
) -> None:
    """Run each rank until what it waits for has not run, and on once it has; `cursor` is how far each came.

    `able` are the ranks that can go on, all at first. A rank that waits is noted at the action it waits for, in the place
    of its level, as −2 − rank; `behind` is what was noted there before it.
    """
    count = len(able)
    while count:
        count -= 1
        rank = able[count]
        at, last = cursor[rank], starts[rank + 1]
        reached = level[at - 1] if at > starts[rank] else NONE
        while at < last:
            needed = dependency[at]
            if needed >= 0:
                other = level[needed]
                if other < 0:
                    behind[rank], level[needed] = other, -2 - rank
                    break
                if other > reached:  # noqa: PLR1730 - a call of max takes Python a quarter of the loop
                    reached = other
            reached += 1
            waiting = level[at]
            level[at] = reached
            while waiting < NONE:
                able[count] = -2 - waiting
                waiting = behind[able[count]]
                count += 1
            at += 1
        cursor[rank] = at


def _stall(order: Order, listing: _Listing, stuck: Mapping[int, int]) -> str:
    """The error message of a deadlock: the ranks that wait for each other in a circle, and where each stops."""
    actions = [(rank, action) for rank, row in enumerate(order.actions) for action in row]

    def at(index: int) -> tuple[int, str]:
        rank, action = actions[min(int(np.searchsorted(listing.actions, index)), len(actions) - 1)]
        return rank, str(action)

    waits = {}
    for rank, index in stuck.items():
        other, needed = at(int(listing.dependency[index]))
        waits[rank] = other, needed, at(index)[1]
    path = [next(iter(stuck))]
    while waits[path[-1]][0] not in path:
        path.append(waits[path[-1]][0])
    circle = path[path.index(waits[path[-1]][0]) :]
    said = []
    for rank in circle:
        other, needed, stop = waits[rank]
        said.append(f"rank {rank} stops at {stop}, which needs {needed} of rank {other}")
    other, needed, _ = waits[circle[-1]]
    return (
        f"order of {order.ranks} ranks and {order.microbatches} microbatches deadlocks: {'; '.join(said)}. Break the "
        f"circle on one rank, as by putting {needed} before {waits[other][2]} on rank {other}"
    )
