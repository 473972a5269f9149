"""Schedules held against each other: the same stage times, the same limit on memory, one measure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from predict.schedules import registry
from predict.schedules.engine import ChunkTimes, simulate
from predict.schedules.timeline import Timeline
from sampling.errors import ConfigError, InfeasibleError


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What one schedule makes of the step; without a timeline where it cannot run these counts."""

    name: str
    timeline: Timeline | None
    released_by_b: float = 0.0
    """Share of a chunk's activations that B lets go in the schedule's account of memory."""
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
    def rank_key(self) -> tuple[bool, float]:
        """Sorts the best first: choices by makespan, then the others by theirs."""
        return not self.valid, self.timeline.makespan if self.timeline else float("inf")


def compare(
    names: Iterable[str],
    *,
    ranks: int,
    chunks: int,
    microbatches: int,
    times: Callable[[str], ChunkTimes],
    memory_limit: int | None = None,
    blocking: bool = False,
) -> list[Outcome]:
    """The schedules by makespan, those that are no choice last. `times` gives those of a schedule by its name.

    `memory_limit` is in chunk activations of a rank, each schedule's peak in its own account. ConfigError for an unknown
    name or times that are none.
    """
    outcomes = []
    for name in dict.fromkeys(names):
        wanted = registry.get(name)
        reason = wanted.supports(ranks, chunks, microbatches)
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
            outcomes.append(Outcome(name=name, timeline=None, why_not=str(error)))
            continue
        outcomes.append(_judged(name, timeline, wanted.released_by_b, memory_limit))
    return sorted(outcomes, key=lambda outcome: outcome.rank_key)


def _judged(name: str, timeline: Timeline, released_by_b: float, memory_limit: int | None) -> Outcome:
    outcome = Outcome(name=name, timeline=timeline, released_by_b=released_by_b)
    peak = max(outcome.peak_chunks)
    if memory_limit is None or peak <= memory_limit:
        return outcome
    why_not = f"holds {peak} chunk activations, more than the limit of {memory_limit}"
    return Outcome(name=name, timeline=timeline, released_by_b=released_by_b, why_not=why_not)


def best(outcomes: Iterable[Outcome]) -> Outcome:
    """The choice with the shortest makespan. InfeasibleError lists why there is none."""
    ranked = sorted(outcomes, key=lambda outcome: outcome.rank_key)
    if not ranked:
        raise ConfigError("no schedule to choose from; name one")
    if ranked[0].valid:
        return ranked[0]
    reasons = "\n".join(f"  {outcome.name} {outcome.why_not}" for outcome in ranked)
    raise InfeasibleError(f"no schedule is a choice; change the counts or raise the memory limit:\n{reasons}")
