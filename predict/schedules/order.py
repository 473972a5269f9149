"""What a pipeline schedule is: the order in which each rank runs its forwards and backwards, and the stages it holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from sampling.errors import ConfigError

Kind = Literal["F", "B", "W", "BW"]
KINDS: tuple[Kind, ...] = get_args(Kind)
FAULTS_SHOWN = 5


class Action(NamedTuple):
    """One piece of work on one microbatch by one chunk of a rank.

    F is the forward, B the gradient of the input, W the gradient of the weights, BW both in one. `microbatch` and
    `chunk` count from 0. A named tuple, since an order holds tens of thousands and hashes every one.
    """

    kind: Kind
    microbatch: int
    chunk: int

    def __str__(self) -> str:
        return f"{self.kind} of microbatch {self.microbatch}, chunk {self.chunk}"


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


def loop(ranks: int, chunks: int) -> Placement:
    """Chunk k of rank r holds stage r + k·ranks (Narayanan et al. 2021, arXiv:2104.04473, section 2.2)."""
    return Placement(
        stages=tuple(tuple(rank + chunk * ranks for chunk in range(chunks)) for rank in range(ranks)),
        chains=(0,) * chunks,
    )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Order:
    """`actions[rank]` in the order of their execution, for one step of `microbatches` microbatches.

    Equal only to itself, so that what is compiled from it is found at no cost; compare `actions` for the content.
    """

    actions: tuple[tuple[Action, ...], ...]
    microbatches: int
    placement: Placement

    @property
    def ranks(self) -> int:
        return len(self.placement.stages)

    @property
    def chunks(self) -> int:
        return len(self.placement.chains)


def check(order: Order) -> None:
    """Raise ConfigError unless every chunk of every rank runs each of its microbatches once, forward and backward.

    The backward is one BW, or one B and one W. Whether the actions can run in this order is for the engine to find.
    """
    faults = list(_placement_faults(order))
    if not faults:
        share = order.microbatches // order.placement.chain_count
        every = {(microbatch, chunk) for microbatch in range(share) for chunk in range(order.chunks)}
        for rank, actions in enumerate(order.actions):
            if not _is_complete(actions, every):
                faults += [f"rank {rank}: {fault}" for fault in _faults(actions, every)]
    if faults:
        shown = "; ".join(faults[:FAULTS_SHOWN])
        more = f"; and {len(faults) - FAULTS_SHOWN} more" if len(faults) > FAULTS_SHOWN else ""
        raise ConfigError(
            f"order of {order.ranks} ranks, {order.chunks} chunks and {order.microbatches} microbatches: {shown}{more}. "
            "Give each chunk of each rank one F and one backward (BW, or both B and W) of each of its microbatches"
        )


def _placement_faults(order: Order) -> Iterator[str]:
    placement = order.placement
    if len(order.actions) != order.ranks or any(len(row) != order.chunks for row in placement.stages):
        yield f"{len(order.actions)} ranks have actions; they do not match placement {placement.stages}"
        return
    if order.microbatches < 1 or order.microbatches % placement.chain_count:
        yield f"{order.microbatches} microbatches do not divide over {placement.chain_count} chains"
    wanted = {(chain, stage) for chain in set(placement.chains) for stage in range(placement.depth)}
    if placement.holders().keys() != wanted:
        yield f"placement {placement.stages} does not hold each of the stages 0 to {placement.depth - 1} once a chain"


def _is_complete(actions: tuple[Action, ...], every: set[tuple[int, int]]) -> bool:
    done = _by_kind(actions)
    forward, backward_input, backward_weight, whole = (done[kind] for kind in KINDS)
    return (
        forward == every
        and backward_input == backward_weight
        and whole | backward_input == every
        and len(actions) == 2 * len(every) + len(backward_weight)
    )


def _by_kind(actions: Iterable[Action]) -> dict[str, set[tuple[int, int]]]:
    done: dict[str, set[tuple[int, int]]] = {kind: set() for kind in KINDS}
    for kind, microbatch, chunk in actions:
        done.setdefault(kind, set()).add((microbatch, chunk))
    return done


def _faults(actions: tuple[Action, ...], every: set[tuple[int, int]]) -> Iterator[str]:
    for action, times in Counter(actions).items():
        if action.kind not in KINDS or action[1:] not in every:
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
