"""A pipeline schedule: the order in which each rank runs its forwards and backwards, and the stages that it holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from regressors.features.arrays import Indices
from sampling.errors import ConfigError

ActionKind = Literal["F", "B", "W", "BW"]
KINDS: tuple[ActionKind, ...] = get_args(ActionKind)
CODE = {kind: code for code, kind in enumerate(KINDS)}
F, B, W, BW = range(len(KINDS))
Rows = NDArray[np.int32]
"""Actions one after the other as (actions, 4): code of the kind, microbatch, chunk, and whether it is half of a pair."""
KIND, MICROBATCH, CHUNK, PAIRED = range(4)
WHOLE_ROW = np.dtype("V16")
"""Dtype that makes a row one item: copying every other row is then twice as fast."""
PLACEMENTS_KEPT = 128


class Action(NamedTuple):
    """One piece of work on one microbatch by one chunk of a rank.

    F is the forward, B the gradient of the input, W the gradient of the weights, BW both in one. `microbatch` and
    `chunk` count from 0.
    """

    kind: ActionKind
    microbatch: int
    chunk: int

    def __str__(self) -> str:
        return f"{self.kind} of microbatch {self.microbatch}, chunk {self.chunk}"


def rows(kind: ActionKind, microbatch: ArrayLike, chunk: ArrayLike = 0, *, paired: bool = False) -> Rows:
    """Actions of one kind, for arrays of microbatches and chunks that go together."""
    microbatches = np.asarray(microbatch)
    made = np.empty((microbatches.size, 4), np.int32)
    made[:, KIND], made[:, MICROBATCH], made[:, CHUNK], made[:, PAIRED] = CODE[kind], microbatches, chunk, paired
    return made


def interleave(*turns: Rows) -> Rows:
    """One action of each in turn; all are equally long."""
    return np.stack(turns, axis=1).reshape(-1, 4)


def merge(*timed: tuple[Rows, ArrayLike]) -> Rows:
    """Actions in the order of the slots given with them; those of one slot in the order of the arguments."""
    slots = np.concatenate([np.broadcast_to(slot, len(actions)) for actions, slot in timed])
    merged: Rows = np.concatenate([actions for actions, _ in timed])[np.argsort(slots, kind="stable")]
    return merged


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """Which stage of the model each chunk of each rank holds.

    `stages[rank][chunk]` counts from 0 along a chain. A chain is one copy of the whole model laid over the ranks;
    `chains[chunk]` says which one a chunk belongs to. All schedules but the bidirectional ones have the one chain 0;
    where there are more, each carries its even share of the microbatches, numbered from 0.
    """

    stages: tuple[tuple[int, ...], ...]
    chains: tuple[int, ...]

    @property
    def chain_count(self) -> int:
        return len(set(self.chains))

    @property
    def depth(self) -> int:
        """Stages of one chain."""
        return len(self.stages) * len(self.chains) // self.chain_count

    def holders(self) -> dict[tuple[int, int], tuple[int, int]]:
        """(chain, stage) → (rank, chunk)."""
        return {
            (self.chains[chunk], stage): (rank, chunk)
            for rank, row in enumerate(self.stages)
            for chunk, stage in enumerate(row)
        }


@lru_cache(maxsize=PLACEMENTS_KEPT)
def loop(ranks: int, chunks: int) -> Placement:
    """Chunk k of rank r holds stage r + k·ranks (Narayanan et al. 2021, arXiv:2104.04473, section 2.2)."""
    return Placement(
        stages=tuple(tuple(rank + chunk * ranks for chunk in range(chunks)) for rank in range(ranks)),
        chains=(0,) * chunks,
    )


@lru_cache(maxsize=PLACEMENTS_KEPT)
def v_shape(ranks: int, chunks: int) -> Placement:
    """Two chunks: the model goes down the ranks and back up, so that a rank holds stages r and 2p − 1 − r."""
    return Placement(stages=tuple((rank, 2 * ranks - 1 - rank) for rank in range(ranks)), chains=(0, 0))


@lru_cache(maxsize=PLACEMENTS_KEPT)
def opposite_chains(ranks: int, chunks: int) -> Placement:
    """Two copies of the model, laid over the ranks in opposite directions; each takes half of the microbatches."""
    return Placement(stages=tuple((rank, ranks - 1 - rank) for rank in range(ranks)), chains=(0, 1))


@dataclass(frozen=True, kw_only=True, eq=False)
class Order:
    """The actions of every rank in the order of their execution, for one step of `microbatches` microbatches.

    An F marked as paired and the BW after it run as one: they start once both can, and are done together. Equal only to
    itself, so that what is compiled from it is found at no cost; compare `actions` for the content.
    """

    rows: Sequence[Rows]
    """Actions of each rank."""
    microbatches: int
    placement: Placement
    folded: Folded | None = None
    """How it follows from an order of fewer microbatches, where that is known."""

    @classmethod
    def of(cls, actions: Iterable[Sequence[Action]], *, microbatches: int, placement: Placement) -> Order:
        """An order without pairs from its actions. ConfigError for an unknown kind."""
        made = []
        for rank, row in enumerate(actions):
            unknown = [str(action) for action in row if action.kind not in KINDS]
            if unknown:
                raise ConfigError(
                    f"order: rank {rank}: {unknown[0]} is not of this order; kinds are {', '.join(KINDS)}"
                )
            codes = [(CODE[kind], microbatch, chunk, 0) for kind, microbatch, chunk in row]
            made.append(np.array(codes, np.int32).reshape(-1, 4))
        return cls(rows=tuple(made), microbatches=microbatches, placement=placement)

    @cached_property
    def actions(self) -> tuple[tuple[Action, ...], ...]:
        """Actions of each rank. For reading, not for arithmetic: an order may hold a million."""
        return tuple(
            tuple(Action(KINDS[kind], microbatch, chunk) for kind, microbatch, chunk, _ in row.tolist())
            for row in self.rows
        )

    @property
    def core(self) -> Order:
        """The shorter order that a folded one continues, else the order itself: as much is alive at once in either."""
        return self.folded.short if self.folded else self

    @property
    def forwards_first(self) -> bool:
        """Whether every rank has all its forwards before its first backward."""
        return not any(bool(((row[1:, KIND] == F) & (row[:-1, KIND] != F)).any()) for row in self.rows)

    @property
    def ranks(self) -> int:
        return len(self.placement.stages)

    @property
    def chunks(self) -> int:
        return len(self.placement.chains)

    @property
    def share(self) -> int:
        """Microbatches of one chain."""
        return self.microbatches // self.placement.chain_count


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Folded:
    """A shorter order whose steady state, the stretch that every rank repeats for later and later microbatches, is continued.

    On each rank the steady state of `short` is `copies` times the same `lengths[rank]` actions and stops before row
    `ends[rank]`; each copy is for microbatches `together` further than the one before. `more` copies are put in there, and
    what follows moves to later microbatches.
    """

    short: Order
    ends: tuple[int, ...]
    lengths: tuple[int, ...]
    copies: int
    together: int
    reach: int
    """Copies by which an action's own copy is further than the copy of anything it waits for, at most. What follows the steady
    state stands in the copy after the last."""
    more: int = 0


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
            yield from (f"{Action(kind, *where)} is there in addition to the BW" for kind in KINDS if kind in split)
        elif not split:
            yield f"the backward of microbatch {where[0]}, chunk {where[1]} is missing"
        elif len(split) == 1:
            (other,) = {"B", "W"} - split
            yield f"{other} of microbatch {where[0]}, chunk {where[1]} is missing"
