"""A schedule: its name, the counts it can run, where it places the stages, and the function that orders its actions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from predict.schedules.engine.costs import TickTimes
from predict.schedules.engine.order import Order, Placement, Rows
from regressors.features.arrays import Indices
from sampling.additions import add

Supports = Callable[[int, int, int], str | None]
Builder = Callable[[int, int, int], Sequence[Rows]]
"""The actions of each rank, from ranks, chunks and microbatches."""
Period = Callable[[int], int]
Solver = Callable[[int, TickTimes, int | None], Sequence[Rows]]
"""The actions of each rank, from microbatches, times and the most chunk activations a rank may hold (None: its own choice)."""
MOST = 2**20
"""Largest ranks · chunks · microbatches: what 64 ranks of 8 chunks need for 2,048 microbatches. Building, solving and timing an
order of this size takes some seconds and 0.5 GB."""
MOST_RANKS = 4096
MOST_CHUNKS = 256
MOST_MICROBATCHES = 2**17
"""Largest counts of each alone; the memory of a rank from action to action takes seconds for as many microbatches."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """One schedule and what it can do. Functions take ranks, chunks per rank and microbatches, in this order."""

    name: str
    citation: str
    splits_backward: bool
    """Whether it runs B and W apart rather than BW."""
    supports: Supports
    """`refusal` for counts within the common bounds."""
    placement: Callable[[int, int], Placement]
    """The stages of each chunk, from ranks and chunks."""
    actions: Builder | None = None
    """The order, where it follows from the counts."""
    period: Period | None = None
    """Microbatches that the order's steady state takes at a time, from the ranks: of as many more microbatches, it is the same order
    with one more copy of them. None where it has no such state."""
    solver: Solver | None = None
    """The order, where it is solved for the times of the stages under a limit on memory."""
    forwards_first: bool = False
    """Whether all forwards of a rank come before its first backward, so that none runs beside a backward."""
    released_by_b: float = 0.0
    """Share of a chunk's activations that B lets go in the schedule's account, W the rest; its limit counts so too."""
    order: Order | None = None
    """The order itself, of a schedule that was read from a file."""

    def refusal(self, ranks: int, chunks: int, microbatches: int) -> str | None:
        """Why it cannot run these counts, as words to follow its name; None if it can."""
        counts = {"ranks": ranks, "chunks": chunks, "microbatches": microbatches}
        low = [f"{key}={value}" for key, value in counts.items() if value < 1]
        if low:
            return f"needs at least one of each, not {', '.join(low)}"
        bounds = {"ranks": MOST_RANKS, "chunks": MOST_CHUNKS, "microbatches": MOST_MICROBATCHES}
        high = [f"{bounds[key]:,} {key}, not {value:,}" for key, value in counts.items() if value > bounds[key]]
        if high:
            return f"is timed up to {' and '.join(high)}"
        if ranks * chunks * microbatches > MOST:
            return f"is timed up to {MOST:,} ranks · chunks · microbatches, not {ranks * chunks * microbatches:,}"
        return self.supports(ranks, chunks, microbatches)


REGISTRY: dict[str, Schedule] = {}
Function = TypeVar("Function")


def schedule(
    name: str,
    *,
    citation: str,
    splits_backward: bool,
    supports: Supports,
    placement: Callable[[int, int], Placement],
    period: Period | None = None,
    forwards_first: bool = False,
) -> Callable[[Builder], Builder]:
    """Decorator: register the function that builds the actions of each rank as the schedule `name`."""

    return _registered(
        lambda actions: Schedule(
            name=name,
            citation=citation,
            splits_backward=splits_backward,
            supports=supports,
            placement=placement,
            actions=actions,
            period=period,
            forwards_first=forwards_first,
        )
    )


def solved(
    name: str,
    *,
    citation: str,
    supports: Supports,
    placement: Callable[[int, int], Placement],
    released_by_b: float = 0.0,
) -> Callable[[Solver], Solver]:
    """Decorator: register the function that solves for the actions of each rank, B and W apart, as the schedule `name`."""

    return _registered(
        lambda solver: Schedule(
            name=name,
            citation=citation,
            splits_backward=True,
            supports=supports,
            placement=placement,
            solver=solver,
            released_by_b=released_by_b,
        )
    )


def _registered(make: Callable[[Function], Schedule]) -> Callable[[Function], Function]:
    """Decorator: register the schedule that `make` makes of the function."""

    def register(function: Function) -> Function:
        made = make(function)
        add(REGISTRY, made.name, made, "schedules")
        return function

    return register


def any_counts(ranks: int, chunks: int, microbatches: int) -> str | None:
    """`supports` of the schedules that run with all counts."""
    return None


def each_microbatch(ranks: int) -> int:
    """`period` of the schedules that repeat themselves from one microbatch to the next."""
    return 1


def each_round(ranks: int) -> int:
    """`period` of the schedules whose chunks take turns every as many microbatches as there are ranks."""
    return ranks


def two_chunks(ranks: int, chunks: int, microbatches: int) -> str | None:
    """`supports` of the schedules for two chunks per rank, whatever the other counts."""
    return None if chunks == 2 else f"needs two chunks per rank (plan.vpp), not {chunks}"


def one_chunk(ranks: int, chunks: int, microbatches: int) -> str | None:
    """`supports` of the schedules for one chunk per rank, whatever the other counts."""
    return None if chunks == 1 else f"needs one chunk per rank (plan.vpp), not {chunks}"


def round_size(ranks: int, microbatches: int) -> int:
    """g: the ranks, as in Megatron-LM, where they divide the microbatches; else as torch has it, the microbatches
    divided by max(1, microbatches // ranks), so that all rounds are equal."""
    return microbatches // round_count(ranks, microbatches)


def round_count(ranks: int, microbatches: int) -> int:
    return max(1, microbatches // ranks)


def whole_rounds(ranks: int, chunks: int, microbatches: int) -> str | None:
    """`supports` of the interleaved schedules."""
    rounds = round_count(ranks, microbatches)
    if microbatches % rounds == 0:
        return None
    nearest = [count for count in _neighbours(ranks, microbatches) if count]
    return (
        f"runs microbatches in equal rounds, and {microbatches} microbatches on {ranks} ranks make {rounds} unequal ones; "
        f"the nearest counts that fit are {' and '.join(map(str, nearest))}"
    )


def _neighbours(ranks: int, microbatches: int) -> tuple[int, int]:
    """Multiples of the ranks below and above; between them more may do, but these always do."""
    below = microbatches // ranks * ranks
    return below, below + ranks


def chunk_turns(chunks: int, microbatches: int, size: int) -> tuple[Indices, Indices]:
    """Microbatch and chunk of each forward of a rank in turn."""
    step = np.arange(microbatches * chunks)
    return step // (size * chunks) * size + step % size, step // size % chunks
