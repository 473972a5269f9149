"""The schedules by name. A module of `families` that decorates its builder with `schedule` is found by itself."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from predict.schedules import families
from predict.schedules.costs import ChunkTimes, TickTimes, in_ticks
from predict.schedules.files.order_files import is_order_file, read_order
from predict.schedules.order import CODE, KIND, Order, Placement, Rows
from sampling.errors import ConfigError, InfeasibleError

Supports = Callable[[int, int, int], str | None]
Builder = Callable[[int, int, int], Sequence[Rows]]
"""The actions of each rank, from ranks, chunks and microbatches."""
Solver = Callable[[int, TickTimes, int | None], Sequence[Rows]]
"""The actions of each rank, from microbatches, times and the most chunk activations a rank may hold (None: its own choice)."""
EQUAL = ChunkTimes(forward=1.0, backward_input=1.0, backward_weight=1.0)
MOST = 2**22
"""Of ranks · chunks · microbatches: twice what 64 ranks of 8 chunks need for 4,096 microbatches. An order of so many by rule
is built and timed in half a minute at most, and in 2 GB; a solved one may take minutes."""
KEPT = 128
"""Orders kept, as many as the engine keeps compiled."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """One schedule and what it can do. Functions take ranks, chunks a rank and microbatches, in this order."""

    name: str
    citation: str
    splits_backward: bool
    """Whether it runs B and W apart rather than BW."""
    supports: Supports
    """What `refusal` says of counts within the common bounds."""
    placement: Callable[[int, int], Placement]
    """The stages of each chunk, from ranks and chunks."""
    actions: Builder | None = None
    """The order, where it follows from the counts."""
    solver: Solver | None = None
    """The order, where it is solved for the times of the stages under a limit on memory."""
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
        if ranks * chunks * microbatches > MOST:
            return f"is timed up to {MOST:,} ranks · chunks · microbatches, not {ranks * chunks * microbatches:,}"
        return self.supports(ranks, chunks, microbatches)

    @property
    def recompute_refusal(self) -> str | None:
        """Why full recomputation of activations cannot go with it, as words to follow its name; None if it can."""
        if not self.splits_backward:
            return None
        return "runs B and W as two passes over the same activations, and each would have to recompute the forward"


REGISTRY: dict[str, Schedule] = {}


def schedule(
    name: str,
    *,
    citation: str,
    splits_backward: bool,
    supports: Supports,
    placement: Callable[[int, int], Placement],
) -> Callable[[Builder], Builder]:
    """Decorator: register the function that builds the actions of each rank as the schedule `name`."""

    def register(actions: Builder) -> Builder:
        _add(
            Schedule(
                name=name,
                citation=citation,
                splits_backward=splits_backward,
                supports=supports,
                placement=placement,
                actions=actions,
            )
        )
        return actions

    return register


def solved(
    name: str,
    *,
    citation: str,
    supports: Supports,
    placement: Callable[[int, int], Placement],
    released_by_b: float = 0.0,
) -> Callable[[Solver], Solver]:
    """Decorator: register the function that solves for the actions of each rank, B and W apart, as the schedule `name`."""

    def register(solver: Solver) -> Solver:
        _add(
            Schedule(
                name=name,
                citation=citation,
                splits_backward=True,
                supports=supports,
                placement=placement,
                solver=solver,
                released_by_b=released_by_b,
            )
        )
        return solver

    return register


def _add(made: Schedule) -> None:
    if made.name in REGISTRY:
        raise ValueError(f"two schedules are named {made.name!r}: {REGISTRY[made.name]} and {made}")
    REGISTRY[made.name] = made


def any_counts(ranks: int, chunks: int, microbatches: int) -> str | None:
    """`supports` of the schedules that run with all counts."""
    return None


def two_chunks(ranks: int, chunks: int, microbatches: int) -> str | None:
    """`supports` of the schedules for two chunks a rank, whatever the other counts."""
    return None if chunks == 2 else f"has two chunks a rank, not {chunks}"


def one_chunk(ranks: int, chunks: int, microbatches: int) -> str | None:
    """`supports` of the schedules for one chunk a rank, whatever the other counts."""
    return None if chunks == 1 else f"has one chunk a rank, not {chunks}"


def names() -> list[str]:
    return sorted(_loaded())


def fitting(ranks: int, chunks: int, microbatches: int) -> list[str]:
    """The names of the schedules that run these counts."""
    return [name for name in names() if _loaded()[name].refusal(ranks, chunks, microbatches) is None]


def fitting_in_words(ranks: int, chunks: int, microbatches: int) -> str:
    """To follow "take another schedule"."""
    found = fitting(ranks, chunks, microbatches)
    return f": {', '.join(found)}" if found else ", none runs these"


def get(name: str) -> Schedule:
    """The schedule of this name, or of the order in this .csv or .json file; ConfigError names the nearest if none."""
    if is_order_file(name):
        return of_order(name, read_order(Path(name)))
    known = _loaded()
    if name not in known:
        nearest = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {nearest[0]!r}? " if nearest else ""
        raise ConfigError(f"plan.schedule: {name!r} is not a schedule; {hint}known: {', '.join(names())}")
    return known[name]


def order(
    named: str | Schedule,
    *,
    ranks: int,
    chunks: int,
    microbatches: int,
    times: ChunkTimes | None = None,
    memory_limit: int | None = None,
) -> Order:
    """The order of the schedule for these counts; the same object for equal ones.

    `times` and `memory_limit` (chunk activations a rank) are for schedules that are solved for them; where they are not
    given, all times are equal and the limit is the schedule's own. ConfigError says why it cannot run the counts,
    InfeasibleError that it cannot keep the limit.
    """
    wanted = get(named) if isinstance(named, str) else named
    name = wanted.name
    reason = wanted.refusal(ranks, chunks, microbatches)
    if reason:
        raise ConfigError(
            f"plan.schedule: {name} {reason} (ranks={ranks}, chunks={chunks}, microbatches={microbatches}); "
            f"change these counts or take another schedule{fitting_in_words(ranks, chunks, microbatches)}"
        )
    if wanted.order is not None:
        return wanted.order
    if wanted.solver is None:
        return _built(name, ranks, chunks, microbatches)
    depth = _placement(name, ranks, chunks).depth
    spelt = in_ticks(times or EQUAL, ranks=ranks, chunks=chunks, depth=depth)
    return _solved(name, microbatches, spelt, memory_limit)


@lru_cache(maxsize=KEPT)
def _built(name: str, ranks: int, chunks: int, microbatches: int) -> Order:
    return _make(get(name), ranks, chunks, microbatches)


def _make(wanted: Schedule, ranks: int, chunks: int, microbatches: int) -> Order:
    assert wanted.actions is not None
    rows = tuple(wanted.actions(ranks, chunks, microbatches))
    return Order(rows=rows, microbatches=microbatches, placement=wanted.placement(ranks, chunks))


@lru_cache(maxsize=KEPT)
def _solved(name: str, microbatches: int, times: TickTimes, limit: int | None) -> Order:
    solver = get(name).solver
    assert solver is not None
    try:
        rows = tuple(solver(microbatches, times, limit))
    except InfeasibleError as error:
        raise InfeasibleError(f"{name} {error}") from None
    return Order(rows=rows, microbatches=microbatches, placement=_placement(name, times.ranks, times.chunks))


@lru_cache(maxsize=KEPT)
def _placement(name: str, ranks: int, chunks: int) -> Placement:
    return get(name).placement(ranks, chunks)


def of_order(name: str, order: Order) -> Schedule:
    """An order that was read from the file `name`, as a schedule that runs its own counts only."""
    held = (order.ranks, order.chunks, order.microbatches)

    def supports(ranks: int, chunks: int, microbatches: int) -> str | None:
        if (ranks, chunks, microbatches) == held:
            return None
        return "holds an order of {} ranks, {} chunks a rank and {} microbatches".format(*held)

    return Schedule(
        name=name,
        citation=f"the order in {name}",
        splits_backward=any(bool((row[:, KIND] == CODE["B"]).any()) for row in order.rows),
        supports=supports,
        placement=lambda ranks, chunks: order.placement,
        order=order,
    )


@cache
def _loaded() -> dict[str, Schedule]:
    """Every schedule, with the modules that register them imported."""
    for module in pkgutil.iter_modules(families.__path__):
        importlib.import_module(f"{families.__name__}.{module.name}")
    return REGISTRY
