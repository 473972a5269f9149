"""The schedules by name. A module of `families` that decorates its builder with `schedule` is found by itself."""

from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path

from predict.schedules.building import REGISTRY, Schedule
from predict.schedules.engine.costs import ChunkTimes, TickTimes, in_ticks
from predict.schedules.engine.folding import continued, steady_state
from predict.schedules.engine.order import CODE, KIND, Folded, Order, Placement
from predict.schedules.order_files import is_order_file, read_order
from sampling.additions import modules_of
from sampling.errors import ConfigError, InfeasibleError
from sampling.files.faults import did_you_mean

EQUAL = ChunkTimes(forward=1.0, backward_input=1.0, backward_weight=1.0)
KEPT = 128
"""Orders kept, as many as the engine keeps compiled."""
SPARE = 2
FEW, WARM_UPS = 8, (2, 4)
"""Periods, and microbatches per rank, among which the steady state of an order is looked for."""


def names() -> list[str]:
    return sorted(_loaded())


def fitting(ranks: int, chunks: int, microbatches: int) -> list[str]:
    """The names of the schedules that run these counts."""
    return [name for name in names() if _loaded()[name].refusal(ranks, chunks, microbatches) is None]


def fitting_in_words(ranks: int, chunks: int, microbatches: int) -> str:
    """The schedules that run these counts, as words to follow "take another schedule"."""
    found = fitting(ranks, chunks, microbatches)
    return f": {', '.join(found)}" if found else ", none runs these"


def get(name: str) -> Schedule:
    """The schedule of this name, or of the order in this .csv or .json file; ConfigError names the nearest if none."""
    if is_order_file(name):
        return of_order(name, read_order(Path(name)))
    known = _loaded()
    if name not in known:
        near = did_you_mean(name, known) or f"; known: {', '.join(names())}"
        raise ConfigError(f"plan.schedule: {name!r} is not a schedule{near}")
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
    wanted = get(name)
    if wanted.period is not None and microbatches % (period := wanted.period(ranks)) == 0:
        form = _shortest_form(name, ranks, chunks)
        if form is not None and microbatches > form.short.microbatches:
            return continued(replace(form, more=(microbatches - form.short.microbatches) // period))
    return _make(wanted, ranks, chunks, microbatches)


@lru_cache(maxsize=KEPT)
def _shortest_form(name: str, ranks: int, chunks: int) -> Folded | None:
    """The order of a schedule that repeats itself, for the fewest microbatches that have SPARE copies more of its steady state than
    what comes after depends on; None where many times the ranks have no steady state."""
    wanted = get(name)
    assert wanted.period is not None
    period = wanted.period(ranks)

    def form(periods: int) -> Folded | None:
        if wanted.refusal(ranks, chunks, periods * period):
            return None
        return steady_state(_make(wanted, ranks, chunks, periods * period), period)

    for warm_up in WARM_UPS:
        periods = warm_up * ranks // period + FEW
        found = form(periods)
        if found is not None:
            spare = found.copies - found.reach - SPARE
            return form(periods - spare) if spare > 0 else found
    return None


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
    counts = (order.ranks, order.chunks, order.microbatches)

    def supports(ranks: int, chunks: int, microbatches: int) -> str | None:
        if (ranks, chunks, microbatches) == counts:
            return None
        return "holds an order of {} ranks, {} chunks per rank and {} microbatches".format(*counts)

    return Schedule(
        name=name,
        citation=f"the order in {name}",
        splits_backward=any(bool((row[:, KIND] == CODE["B"]).any()) for row in order.rows),
        supports=supports,
        placement=lambda ranks, chunks: order.placement,
        forwards_first=order.forwards_first,
        order=order,
    )


@cache
def _loaded() -> dict[str, Schedule]:
    """Every schedule, with the modules that register them imported."""
    modules_of("predict.schedules.families")
    return REGISTRY
