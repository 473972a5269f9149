"""Schedules compared with each other: the same stage times, the same limit on memory, one measure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from numpy.typing import ArrayLike

from predict.schedules import registry
from predict.schedules.engine.timing import ChunkTimes, Timeline, simulate
from sampling.errors import InfeasibleError
from sampling.number_text import size


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleOutcome:
    """One schedule's step; without a timeline where it cannot run these counts."""

    name: str
    timeline: Timeline | None
    chunk_bytes: ArrayLike | None = None
    """Bytes of a chunk's activations, where they are known: one number, or by rank and chunk."""
    cost: float = math.inf
    """The time by which it is compared."""
    released_by_b: float = 0.0
    """Share of a chunk's activations that B lets go in the schedule's own account."""
    why_not: str | None = None
    """Why it is not a choice; None if it is one."""
    device_bytes: float | None = None
    """Expected peak of the fullest device, where a run's memory is known."""
    capacity_bytes: float | None = None
    exceeds_device: bool = False
    """Whether the device's memory is the only reason why it is not a choice."""

    @property
    def valid(self) -> bool:
        return self.why_not is None

    @property
    def copies(self) -> int:
        """Copies of the model; with n of them a chunk is n times as large as in a schedule with one."""
        return self.timeline.order.placement.chain_count if self.timeline else 1

    @property
    def peak_chunks(self) -> tuple[int, ...]:
        """The most chunk activations alive at once in the schedule's own account, by rank; empty without a timeline."""
        return self.timeline.peak_chunks(self.released_by_b) if self.timeline else ()

    @property
    def peak_chunks_until_w(self) -> tuple[int, ...] | None:
        """`peak_chunks` with every activation held until its W; None where the schedule counts so itself."""
        return self.timeline.peak_chunks() if self.timeline and self.released_by_b else None

    @property
    def peak_bytes(self) -> tuple[float, ...] | None:
        """Bytes of the activations alive at once, by rank; None where they are not known."""
        return self.timeline.peak_bytes(self.chunk_bytes) if self.timeline and self.chunk_bytes is not None else None

    @property
    def memory(self) -> int:
        """The most that a rank holds, in chunks of a single copy of the model."""
        return max(self.peak_chunks, default=0) * self.copies

    @property
    def rank_key(self) -> tuple[bool, float, int, int, str]:
        """Sort key, best first: schedules that can be chosen by time, then by memory, before those that cannot."""
        # The plainer of equals has the shorter name: 1f1b before its interleaved form of one chunk.
        return not self.valid, float(f"{self.cost:.9g}"), self.memory, len(self.name), self.name

    def within(self, memory_limit: int | None) -> ScheduleOutcome:
        """The same, and not a choice if it holds more than the limit, in chunks of a single copy of the model."""
        if memory_limit is None or self.memory <= memory_limit:
            return self
        size = f" of {self.copies} × the size" if self.copies > 1 else ""
        why_not = f"holds {max(self.peak_chunks)} chunk activations{size}, more than the limit of {memory_limit}"
        return replace(self, why_not=why_not)

    def within_device(self, device_bytes: float, capacity_bytes: float) -> ScheduleOutcome:
        """The same with the peak of its fullest device, and not a choice if that is more than the device has."""
        known = replace(self, device_bytes=device_bytes, capacity_bytes=capacity_bytes)
        if self.why_not or device_bytes <= capacity_bytes:
            return known
        why_not = f"needs {size(device_bytes)} per device, which has {size(capacity_bytes)}"
        return replace(known, why_not=why_not, exceeds_device=True)


def compare(
    names: Iterable[str],
    *,
    ranks: int,
    chunks: int,
    microbatches: int,
    timed: Callable[[str], tuple[Timeline, float]],
    refusal: Callable[[str], str | None] = lambda name: None,
    memory_limit: int | None = None,
    chunk_bytes: ArrayLike | None = None,
) -> list[ScheduleOutcome]:
    """The schedules, the one with the least cost first.

    By its name, `timed` gives a schedule's timeline and the cost by which it is ranked, or raises InfeasibleError; `refusal`
    says why it is out of the question. `memory_limit` is in chunk activations of a rank, counted as the schedule does.
    ConfigError for an unknown name.
    """
    outcomes = []
    for name in dict.fromkeys(names):
        wanted = registry.get(name)
        reason = wanted.refusal(ranks, chunks, microbatches) or refusal(name)
        if reason:
            outcomes.append(ScheduleOutcome(name=name, timeline=None, why_not=reason))
            continue
        try:
            timeline, cost = timed(name)
        except InfeasibleError as error:
            outcomes.append(ScheduleOutcome(name=name, timeline=None, why_not=str(error).removeprefix(f"{name} ")))
            continue
        made = ScheduleOutcome(
            name=name,
            timeline=timeline,
            chunk_bytes=chunk_bytes,
            cost=cost,
            released_by_b=wanted.released_by_b,
        )
        outcomes.append(made.within(memory_limit))
    return sorted(outcomes, key=lambda outcome: outcome.rank_key)


def timed_alike(
    *, ranks: int, chunks: int, microbatches: int, times: ChunkTimes, memory_limit: int | None
) -> Callable[[str], tuple[Timeline, float]]:
    """`timed` of `compare` where the same times hold for a chunk of every schedule: the cost is the makespan, doubled for a
    schedule with two copies of the model, whose chunks are twice as large."""

    def timed(name: str) -> tuple[Timeline, float]:
        order = registry.order(
            name, ranks=ranks, chunks=chunks, microbatches=microbatches, times=times, memory_limit=memory_limit
        )
        timeline = simulate(order, times)
        return timeline, timeline.makespan * order.placement.chain_count

    return timed


def best(outcomes: Sequence[ScheduleOutcome]) -> ScheduleOutcome:
    """The best schedule. InfeasibleError says why none can be chosen."""
    ranked = sorted(outcomes, key=lambda outcome: outcome.rank_key)
    if ranked[0].valid:
        return ranked[0]
    by_reason = reasons(ranked)
    listed = "; ".join(
        f"{', '.join(names)}{' each' * (len(names) > 1)} {why_not}" for why_not, names in by_reason.items()
    )
    raise InfeasibleError(f"no schedule can run this: {_nearest(ranked)}{listed}")


def best_or_nearest(outcomes: Sequence[ScheduleOutcome]) -> ScheduleOutcome | None:
    """The best schedule; where the device's memory alone rules out all that could be, that with the smallest peak; else None."""
    valid = [each for each in outcomes if each.valid]
    return best(valid) if valid else smallest_peak(each for each in outcomes if each.exceeds_device)


def smallest_peak(outcomes: Iterable[ScheduleOutcome]) -> ScheduleOutcome | None:
    """The schedule that comes nearest to fitting the device; None where no peak is known."""
    known = [each for each in outcomes if each.device_bytes]
    return min(known, key=lambda each: (each.device_bytes or 0.0, each.name), default=None)


def _nearest(outcomes: Iterable[ScheduleOutcome]) -> str:
    """The smallest peak and the device's capacity in words; empty unless that peak is what rules a schedule out."""
    nearest = smallest_peak(outcomes)
    if nearest is None or not nearest.exceeds_device:
        return ""
    peak, capacity = size(nearest.device_bytes or 0.0), size(nearest.capacity_bytes or 0.0)
    return f"the smallest peak is {peak} per device ({nearest.name}), which has {capacity}; "


def reasons(outcomes: Iterable[ScheduleOutcome]) -> dict[str, list[str]]:
    """Reason → the names of the schedules that it rules out."""
    found: dict[str, list[str]] = {}
    for outcome in outcomes:
        if outcome.why_not:
            found.setdefault(outcome.why_not, []).append(outcome.name)
    return found
