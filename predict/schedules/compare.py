"""Schedules held against each other: the same stage times, the same limit on memory, one measure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from predict.schedules import registry
from predict.schedules.engine import ChunkTimes, simulate
from predict.schedules.timeline import Timeline
from sampling.errors import InfeasibleError


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What one schedule makes of the step; without a timeline where it cannot run these counts."""

    name: str
    timeline: Timeline | None
    released_by_b: float = 0.0
    """Share of a chunk's activations that B lets go in the schedule's account of memory."""
    copies: int = 1
    """How often makespan and activations count in a comparison: as often as a chunk here holds a chunk of the others."""
    why_not: str | None = None
    """Why it is no choice; None if it is one."""

    @property
    def valid(self) -> bool:
        return self.why_not is None

    @property
    def peak_chunks(self) -> tuple[int, ...]:
        """By rank, the most chunk activations alive at once; empty without a timeline."""
        return self.timeline.peak_chunks(self.released_by_b) if self.timeline else ()

    @property
    def fair_makespan(self) -> float:
        """The makespan for the work that the others do; infinite without a timeline."""
        return self.timeline.makespan * self.copies if self.timeline else math.inf

    @property
    def rank_key(self) -> tuple[bool, float, int, int, str]:
        """Sorts the best first: choices by time, then by memory; those that are none after them."""
        time, memory = float(f"{self.fair_makespan:.9g}"), max(self.peak_chunks, default=0)
        # The plainer of equals has the shorter name: 1f1b before its interleaved form of one chunk.
        return not self.valid, time, memory, len(self.name), self.name


def compare(
    names: Iterable[str],
    *,
    ranks: int,
    chunks: int,
    microbatches: int,
    times: Callable[[str], ChunkTimes],
    refusal: Callable[[str], str | None] = lambda name: None,
    memory_limit: int | None = None,
    blocking: bool = False,
    equal_chunks: bool = False,
) -> list[Outcome]:
    """The schedules, best first. `times` gives those of a schedule by its name, `refusal` why it is out of the question.

    With `equal_chunks` they are the same for all, of a model cut into ranks · chunks pieces; then a schedule that runs
    two copies of the model, whose stages are twice as large, counts double. `memory_limit` is in chunk activations of a rank, each schedule's peak in its own account. ConfigError for an unknown
    name or times that are none.
    """
    outcomes = []
    for name in dict.fromkeys(names):
        wanted = registry.get(name)
        reason = wanted.refusal(ranks, chunks, microbatches) or refusal(name)
        if reason:
            outcomes.append(Outcome(name=name, timeline=None, why_not=reason))
            continue
        of_schedule = times(name)
        try:
            order = registry.order(
                name,
                ranks=ranks,
                chunks=chunks,
                microbatches=microbatches,
                times=of_schedule,
                memory_limit=memory_limit,
            )
            timeline = simulate(order, of_schedule, blocking=blocking)
        except InfeasibleError as error:
            outcomes.append(Outcome(name=name, timeline=None, why_not=str(error).removeprefix(f"{name} ")))
            continue
        copies = order.placement.chain_count if equal_chunks else 1
        made = Outcome(name=name, timeline=timeline, released_by_b=wanted.released_by_b, copies=copies)
        outcomes.append(_judged(made, memory_limit))
    return sorted(outcomes, key=lambda outcome: outcome.rank_key)


def _judged(outcome: Outcome, memory_limit: int | None) -> Outcome:
    peak = max(outcome.peak_chunks)
    if memory_limit is None or peak * outcome.copies <= memory_limit:
        return outcome
    size = f" of {outcome.copies} × the size" if outcome.copies > 1 else ""
    return replace(outcome, why_not=f"holds {peak} chunk activations{size}, more than the limit of {memory_limit}")


def best(outcomes: Sequence[Outcome]) -> Outcome:
    """The first choice. InfeasibleError says why there is none."""
    ranked = sorted(outcomes, key=lambda outcome: outcome.rank_key)
    if ranked[0].valid:
        return ranked[0]
    by_reason = reasons(ranked)
    listed = "; ".join(f"{', '.join(names)} {why_not}" for why_not, names in by_reason.items())
    raise InfeasibleError(f"no schedule can run this: {listed}. Change the counts, or raise the memory limit")


def reasons(outcomes: Iterable[Outcome]) -> dict[str, list[str]]:
    """Why → the names of those that are no choice for this reason."""
    found: dict[str, list[str]] = {}
    for outcome in outcomes:
        if outcome.why_not:
            found.setdefault(outcome.why_not, []).append(outcome.name)
    return found
