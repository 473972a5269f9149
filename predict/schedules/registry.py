"""The schedules by name. A module of this folder that decorates its builder with `schedule` is found by itself."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import predict.schedules
from predict.schedules.order import Order, Placement, Rows
from sampling.errors import ConfigError

Builder = Callable[[int, int, int], Sequence[Rows]]
NOT_FAMILIES = {"compiled", "costs", "engine", "order", "positions", "program", "registry", "rounds", "timeline"}
KEPT = 128
"""Orders kept, as many as the engine keeps compiled."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """One schedule and what it can do. Functions take ranks, chunks a rank and microbatches, in this order."""

    name: str
    citation: str
    splits_backward: bool
    """Whether it runs B and W apart rather than BW."""
    supports: Callable[[int, int, int], str | None]
    """Why it cannot run these counts, as words to follow its name; None if it can."""
    placement: Callable[[int, int], Placement]
    """The stages of each chunk, from ranks and chunks."""
    actions: Builder
    """The actions of each rank."""

    @property
    def recompute_refusal(self) -> str | None:
        """Why full recomputation of activations cannot go with it, as words to follow its name; None if it can."""
        if not self.splits_backward:
            return None
        return "runs B and W as two passes over the same activations, and each would have to recompute the forward"

    def make(self, ranks: int, chunks: int, microbatches: int) -> Order:
        return Order(
            rows=tuple(self.actions(ranks, chunks, microbatches)),
            microbatches=microbatches,
            placement=self.placement(ranks, chunks),
        )


REGISTRY: dict[str, Schedule] = {}


def schedule(
    name: str,
    *,
    citation: str,
    splits_backward: bool,
    supports: Callable[[int, int, int], str | None],
    placement: Callable[[int, int], Placement],
) -> Callable[[Builder], Builder]:
    """Decorator: register the function that builds the actions of each rank as the schedule `name`."""

    def register(actions: Builder) -> Builder:
        if name in REGISTRY:
            raise ValueError(f"two schedules are named {name!r}: {REGISTRY[name].actions} and {actions}")
        REGISTRY[name] = Schedule(
            name=name,
            citation=citation,
            splits_backward=splits_backward,
            supports=supports,
            placement=placement,
            actions=actions,
        )
        return actions

    return register


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


def get(name: str) -> Schedule:
    """The schedule of this name; ConfigError names the nearest if there is none."""
    known = _loaded()
    if name not in known:
        nearest = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {nearest[0]!r}? " if nearest else ""
        raise ConfigError(f"plan.schedule: {name!r} is not a schedule; {hint}known: {', '.join(names())}")
    return known[name]


@lru_cache(maxsize=KEPT)
def order(name: str, *, ranks: int, chunks: int, microbatches: int) -> Order:
    """The order of the schedule for these counts, always the same object; ConfigError says why it cannot run them."""
    wanted = get(name)
    counts = {"ranks": ranks, "chunks": chunks, "microbatches": microbatches}
    low = [f"{key}={value}" for key, value in counts.items() if value < 1]
    reason = f"needs at least one of each, not {', '.join(low)}" if low else wanted.supports(*counts.values())
    if reason:
        raise ConfigError(
            f"plan.schedule: {name} {reason} (ranks={ranks}, chunks={chunks}, microbatches={microbatches}); "
            f"change these counts or take another schedule: {', '.join(names())}"
        )
    return wanted.make(ranks, chunks, microbatches)


@cache
def _loaded() -> dict[str, Schedule]:
    """Every schedule, with the modules that register them imported."""
    for module in pkgutil.iter_modules(predict.schedules.__path__):
        if module.name not in NOT_FAMILIES:
            importlib.import_module(f"predict.schedules.{module.name}")
    return REGISTRY
