"""An order compiled once into flat indices, so that timing it is one pass over numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from predict.schedules.order import KINDS, Action, Order, check
from sampling.errors import InfeasibleError

Indices = NDArray[np.intp]
Holder = tuple[int, int]
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


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Program:
    """The actions of an order in an order of execution, by rows of a column of times.

    Row 0 is the start of the step, row i the i-th action. A cell is a kind, rank and chunk: actions of one cell take
    equally long. Edge 0 is none, edge s + 1 joins stages s and s + 1 where they are on two ranks.
    """

    ranks: int
    chunks: int
    depth: int
    """Stages of a chain."""
    rows: tuple[Indices, ...]
    """By rank, the rows of its actions."""
    previous: list[int]
    """By action, the row of the action before on the rank, 0 for none."""
    dependency: list[int]
    """By action, the row of the action whose result it needs, 0 for none."""
    edge: list[int]
    """By action, the edge over which the result it needs comes."""
    cell: list[int]
    """By action, its cell."""
    sends: list[int]
    """By cell, the edge over which its result goes."""
    level: Indices
    """By action, its level: the most steps from any action without a predecessor."""


@lru_cache(maxsize=KEPT)
def compile_order(order: Order) -> Program:
    """Compile an order. ConfigError if it is not complete, InfeasibleError naming who waits for whom if it stalls."""
    check(order)
    edges = _Edges(order)
    dependency = _dependencies(order, edges)
    level = np.array(_levels(order, dependency), dtype=np.intp)
    by_level = np.argsort(level, kind="stable")
    row = np.empty(len(level) + 1, dtype=np.intp)
    row[by_level] = np.arange(1, len(level) + 1)
    row[-1] = 0  # index -1, no action, ends at the start of the step
    starts = _starts(order)
    previous = np.arange(-1, len(level) - 1)
    previous[starts[:-1]] = -1
    cell = np.array(_cells(order), dtype=np.intp)[by_level]
    return Program(
        ranks=order.ranks,
        chunks=order.chunks,
        depth=order.placement.depth,
        rows=tuple(row[first:last] for first, last in pairwise(starts)),
        previous=row[previous[by_level]].tolist(),
        dependency=row[np.array(dependency, dtype=np.intp)[by_level]].tolist(),
        edge=np.array(edges.receives, dtype=np.intp)[cell].tolist(),
        cell=cell.tolist(),
        sends=edges.sends,
        level=level[by_level],
    )


@lru_cache(maxsize=KEPT)
def levels(program: Program) -> tuple[Level, ...]:
    """The program cut into levels, for timing many sets of times at once."""
    bounds = np.searchsorted(program.level, np.arange(program.level[-1] + 2)).tolist()
    waits = np.array([program.dependency, program.previous], dtype=np.intp)
    costs = np.array([program.edge, [cell + program.depth for cell in program.cell]], dtype=np.intp)
    return tuple(
        Level(first + 1, last + 1, waits[:, first:last].ravel(), costs[:, first:last].ravel())
        for first, last in pairwise(bounds)
    )


class _Edges:
    """Who sends to whom: by rank and chunk the holder (rank, chunk) of the stage before and after, and the edges by cell."""

    def __init__(self, order: Order) -> None:
        placement = order.placement
        holders = placement.holders()
        self.before: list[list[Holder | None]] = []
        self.after: list[list[Holder | None]] = []
        up: list[int] = []
        down: list[int] = []
        for rank, stages in enumerate(placement.stages):
            places = list(zip(placement.chains, stages, strict=True))
            before = [holders.get((chain, stage - 1)) for chain, stage in places]
            after = [holders.get((chain, stage + 1)) for chain, stage in places]
            self.before.append(before)
            self.after.append(after)
            # Between two stages of the same rank nothing is sent.
            up += [s if holder and holder[0] != rank else 0 for s, holder in zip(stages, before, strict=True)]
            down += [s + 1 if holder and holder[0] != rank else 0 for s, holder in zip(stages, after, strict=True)]
        none = [0] * len(up)
        self.receives = up + down + none + down
        self.sends = down + up + none + up


def _starts(order: Order) -> list[int]:
    starts = [0]
    for actions in order.actions:
        starts.append(starts[-1] + len(actions))
    return starts


def _cells(order: Order) -> list[int]:
    """By action, rank after rank, the index of its kind, rank and chunk."""
    size = order.ranks * order.chunks
    first = {kind: index * size for index, kind in enumerate(KINDS)}
    return [
        first[kind] + rank * order.chunks + chunk
        for rank, actions in enumerate(order.actions)
        for kind, _, chunk in actions
    ]


def _dependencies(order: Order, edges: _Edges) -> list[int]:
    """By action, rank after rank, the index of the action whose result it needs, -1 for none.

    F needs the F of the stage before; B and BW the backward of the stage after, on the last stage their own F; W its B.
    """
    starts = _starts(order)
    index: list[dict[tuple[str, int, int], int]] = [
        dict(zip(actions, range(start, start + len(actions)), strict=True))
        for start, actions in zip(starts, order.actions, strict=False)
    ]
    needs: list[int] = []
    for rank, actions in enumerate(order.actions):
        own, before, after = index[rank], edges.before[rank], edges.after[rank]
        for kind, microbatch, chunk in actions:
            if kind == "W":
                needs.append(own["B", microbatch, chunk])
            elif kind == "F":
                source = before[chunk]
                needs.append(index[source[0]]["F", microbatch, source[1]] if source else -1)
            else:
                source = after[chunk]
                needs.append(_backward(index, microbatch, source) if source else own["F", microbatch, chunk])
    return needs


def _backward(index: Sequence[dict[tuple[str, int, int], int]], microbatch: int, source: Holder) -> int:
    rank, chunk = source
    whole = index[rank].get(("BW", microbatch, chunk))
    return index[rank]["B", microbatch, chunk] if whole is None else whole


def _levels(order: Order, dependency: Sequence[int]) -> list[int]:
    """By action, rank after rank, one more than the highest level of what it waits for; InfeasibleError on a stall."""
    starts = _starts(order)
    level = [-1] * starts[-1]
    cursor = starts[:-1]
    moved = True
    while moved:
        moved = False
        for rank, last in enumerate(starts[1:]):
            at = cursor[rank]
            reached = level[at - 1] if at > starts[rank] else -1
            while at < last:
                needed = dependency[at]
                if needed >= 0:
                    other = level[needed]
                    if other < 0:
                        break
                    reached = max(reached, other)
                reached += 1
                level[at] = reached
                at += 1
            moved |= at > cursor[rank]
            cursor[rank] = at
    stuck = [rank for rank, last in enumerate(starts[1:]) if cursor[rank] < last]
    if stuck:
        raise InfeasibleError(_stall(order, dependency, [(rank, cursor[rank]) for rank in stuck]))
    return level


def _stall(order: Order, dependency: Sequence[int], stuck: Sequence[tuple[int, int]]) -> str:
    flat: list[tuple[int, Action]] = [(rank, action) for rank, row in enumerate(order.actions) for action in row]
    waits = []
    for rank, at in stuck:
        other, needed = flat[dependency[at]]
        waits.append(f"rank {rank} stops at {flat[at][1]}, which needs {needed} of rank {other}")
    return (
        f"order of {order.ranks} ranks and {order.microbatches} microbatches deadlocks: {'; '.join(waits)}. "
        "Put each action after those that its dependency itself waits for"
    )
