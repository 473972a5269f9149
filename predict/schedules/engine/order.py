"""A pipeline schedule: the order in which each rank runs its forwards and backwards, and the stages that it holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sampling.errors import ConfigError

Kind = Literal["F", "B", "W", "BW"]
KINDS: tuple[Kind, ...] = get_args(Kind)
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

    kind: Kind
    microbatch: int
    chunk: int

    def __str__(self) -> str:
        return f"{self.kind} of microbatch {self.microbatch}, chunk {self.chunk}"


def rows(kind: Kind, microbatch: ArrayLike, chunk: ArrayLike = 0, *, paired: bool = False) -> Rows:
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
    """Copies by which an action's own copy is further than that of anything it waits for, at most. What follows the steady
    state stands in the copy after the last."""
    more: int = 0
