"""The position of each action in an order, once the order is known to be complete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from predict.schedules.engine.order import CODE, KIND, KINDS, PAIRED, Action, Order, Placement
from sampling.errors import ConfigError

Indices = NDArray[np.intp]
FAULTS_SHOWN = 5
EACH_ONCE = "Give each chunk of each rank one F and one backward (BW, or both B and W) of each of its microbatches"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Positions:
    """The actions of an order rank after rank, by column, and the way back from an action to its index."""

    microbatch: NDArray[np.int32]
    chunk: NDArray[np.int32]
    paired: NDArray[np.int32]
    starts: Indices
    """Index of each rank's first action; then the number of all actions."""
    cell: Indices
    """Cell of each action: (kind · ranks + rank) · chunks + chunk."""
    of: Indices
    """Index of the action of each cell and microbatch, at cell · share + microbatch; −1 for none."""


def locate(order: Order) -> Positions:
    """Raise ConfigError unless every chunk of every rank runs each of its microbatches once, forward and backward.

    The backward is one BW, or one B and one W. Whether the actions can run in this order is for the engine to find.
    """
    _check_placement(order)
    kind, microbatch, chunk, paired = np.ascontiguousarray(np.concatenate(order.rows).T)
    total = len(kind)
    if order.share > total:
        _refuse(order, [f"{order.share} microbatches a chain, but only {total} actions in all"])
    starts = np.concatenate([[0], np.cumsum([len(row) for row in order.rows])])
    limits = ((kind, len(KINDS)), (microbatch, order.share), (chunk, order.chunks))
    if any(column.min() < 0 or column.max() >= limit for column, limit in limits):
        _refuse(order, _all_faults(order))
    size = order.ranks * order.chunks
    of_rank = np.repeat(np.arange(0, size, order.chunks), np.diff(starts))
    cell = of_rank + (kind * np.int32(size) + chunk)
    of = np.full(len(KINDS) * size * order.share, -1, dtype=np.intp)
    of[cell * order.share + microbatch] = np.arange(total)
    done = of >= 0
    forward, backward_input, backward_weight, whole = done.reshape(len(KINDS), -1)
    complete = forward.all() and (backward_input == backward_weight).all() and (backward_input ^ whole).all()
    if not complete or np.count_nonzero(done) < total:
        _refuse(order, _all_faults(order))
    if paired.any():
        _refuse(order, list(_pair_faults(order)))
    return Positions(microbatch=microbatch, chunk=chunk, paired=paired, starts=starts, cell=cell, of=of)


def _refuse(order: Order, faults: list[str], fix: str = EACH_ONCE) -> None:
    if faults:
        shown = "; ".join(faults[:FAULTS_SHOWN])
        more = f"; and {len(faults) - FAULTS_SHOWN} more" if len(faults) > FAULTS_SHOWN else ""
        raise ConfigError(
            f"order of {order.ranks} ranks, {order.chunks} chunks and {order.microbatches} microbatches: "
            f"{shown}{more}. {fix}"
        )


def _check_placement(order: Order) -> None:
    placement = order.placement
    if len(order.rows) != order.ranks or any(len(row) != order.chunks for row in placement.stages):
        fault = f"{len(order.rows)} ranks have actions; they do not match placement {placement.stages}"
        _refuse(order, [fault], "Give placement.stages a row for each rank, with a stage for each chunk")
    if set(placement.chains) != set(range(placement.chain_count)):
        _refuse(order, [f"placement has the chains {placement.chains}"], "Number the chains from 0 without a gap")
    if not _holds_each_stage(placement):
        last = placement.depth - 1
        fault = f"placement {placement.stages} does not hold each of the stages 0 to {last} once a chain"
        _refuse(order, [fault], f"Give each of the stages 0 to {last} of a chain to one chunk of one rank")
    if order.microbatches < 1 or order.microbatches % placement.chain_count:
        fault = f"{order.microbatches} microbatches do not divide over {placement.chain_count} chains"
        _refuse(order, [fault], "Give each chain equally many, at least one")


@lru_cache(maxsize=128)
def _holds_each_stage(placement: Placement) -> bool:
    chunks = len(placement.stages) * len(placement.chains)
    wanted = {(chain, stage) for chain in set(placement.chains) for stage in range(placement.depth)}
    return placement.holders().keys() == wanted and len(wanted) == chunks


def _pair_faults(order: Order) -> Iterator[str]:
    """A pair is an F and the BW right after it."""
    for rank, row in enumerate(order.rows):
        paired = np.flatnonzero(row[:, PAIRED])
        if not len(paired):
            continue
        first, second = paired[::2], paired[1::2]
        sound = len(first) == len(second) and (second == first + 1).all()
        if not sound or (row[first, KIND] != CODE["F"]).any() or (row[second, KIND] != CODE["BW"]).any():
            yield f"rank {rank}: a pair is not an F and the BW right after it"


def _all_faults(order: Order) -> list[str]:
    every = {(microbatch, chunk) for microbatch in range(order.share) for chunk in range(order.chunks)}
    return [f"rank {rank}: {fault}" for rank, row in enumerate(order.actions) for fault in _faults(row, every)]


def _by_kind(actions: Iterable[Action]) -> dict[str, set[tuple[int, int]]]:
    done: dict[str, set[tuple[int, int]]] = {kind: set() for kind in KINDS}
    for kind, microbatch, chunk in actions:
        done[kind].add((microbatch, chunk))
    return done


def _faults(actions: tuple[Action, ...], every: set[tuple[int, int]]) -> Iterator[str]:
    for action, times in Counter(actions).items():
        if action[1:] not in every:
            yield f"{action} is not of this order"
        elif times > 1:
            yield f"{action} is there {times} times"
    done = _by_kind(actions)
    for where in sorted(every):
        if where not in done["F"]:
            yield f"{Action('F', *where)} is missing"
        split = {kind for kind in ("B", "W") if where in done[kind]}
        if where in done["BW"]:
            yield from (f"{Action(kind, *where)} is there beside the BW" for kind in KINDS if kind in split)
        elif not split:
            yield f"the backward of microbatch {where[0]}, chunk {where[1]} is missing"
        elif len(split) == 1:
            (other,) = {"B", "W"} - split
            yield f"{other} of microbatch {where[0]}, chunk {where[1]} is missing"
