"""The zero-bubble schedule of Qi et al. for the actual times of the stages, under a limit on the memory.

A greedy fill: round after round every rank runs at most one forward and then one B, and a W wherever the rank would
wait longer than a W takes, or must make room. Three choices that no rule decides well are all tried, as eight fills, of
which the one with the shortest longest span is compared with the handcrafted orders and orders by list scheduling.

Memory is counted as its authors do, against a limit and as the peak: B lets half of an activation go, W the other half.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from predict.schedules.building import one_chunk, solved
from predict.schedules.engine.costs import TickTimes
from predict.schedules.engine.order import B, F, Rows, W, loop
from predict.schedules.families.zero_bubble import ZERO_BUBBLE, zb_h1, zb_h2
from predict.schedules.order_search import Budget, Setting, each_setting, list_orders, numbered, peak, shortest
from sampling.errors import InfeasibleError

RELEASED_BY_B = 0.5


@solved(
    "zb-auto",
    citation=f"{ZERO_BUBBLE}, section 3.1",
    supports=one_chunk,
    placement=loop,
    released_by_b=RELEASED_BY_B,
)
def zb_auto(microbatches: int, times: TickTimes, limit: int | None) -> list[Rows]:
    """Holds at most `limit` activations on every rank (default 2p). InfeasibleError for a limit below 1."""
    budget = Budget(2 * times.ranks if limit is None else limit, by_b=1)
    if budget.limit < 1:
        raise InfeasibleError(f"cannot run within {budget.limit} chunk activations; give 1 or more")
    orders = (rows for rows in _orders(microbatches, times, budget) if peak(rows, RELEASED_BY_B) <= budget.limit)
    return shortest(orders, loop(times.ranks, 1), microbatches, times)


def _orders(microbatches: int, times: TickTimes, budget: Budget) -> Iterator[Sequence[Rows]]:
    yield _filled(microbatches, times, budget)
    for by_hand in (zb_h1, zb_h2):
        yield by_hand(times.ranks, 1, microbatches)
    yield from list_orders(microbatches, times, budget)


def _filled(microbatches: int, times: TickTimes, budget: Budget) -> list[Rows]:
    def trial(setting: Setting) -> tuple[_Fill, set[int]]:
        choices = _Choices(setting[0], setting[1], setting[2])
        return _fill(microbatches, times, budget, choices), choices.came_up

    return min(each_setting(3, trial), key=_Fill.longest_span).rows()


@dataclass(frozen=True, slots=True)
class _Choices:
    stop_before_first_backward: bool
    """Run no forward ahead that would delay the first B, even if the rank idles until then."""
    spare_forwards: bool
    """Leave out a forward that would delay the next rank's B by more than the bubble it already has."""
    fill_covered_gaps: bool
    """Put a W also into a gap that is too short for it and smaller than the bubble of the worst rank."""
    came_up: set[int] = field(default_factory=set)
    """Which of the three, counted from 0, have made a difference so far."""


class _Fill:
    """The actions run so far, and their end times."""

    def __init__(self, microbatches: int, times: TickTimes, budget: Budget) -> None:
        ranks = times.ranks
        self.microbatches, self.times, self.budget = microbatches, times, budget
        self.cost = (times.forward, times.backward_input, times.backward_weight)
        self.forward_end: list[list[int]] = [[] for _ in range(ranks)]
        self.backward_end: list[list[int]] = [[] for _ in range(ranks)]
        self.weights = [0] * ranks
        self.free = [0] * ranks
        self.bubble = [0] * ranks
        self.worst_bubble = 0
        self.kinds: list[list[int]] = [[] for _ in range(ranks)]

    def arrival(self, kind: int, rank: int) -> int:
        """When the next F or B of the rank has its input."""
        if kind == F:
            return self.forward_end[rank - 1][len(self.forward_end[rank])] + self.times.p2p[rank - 1] if rank else 0
        if rank == self.times.ranks - 1:
            return self.forward_end[rank][len(self.backward_end[rank])]
        return self.backward_end[rank + 1][len(self.backward_end[rank])] + self.times.p2p[rank]

    def run(self, kind: int, rank: int) -> None:
        start = self.free[rank]
        if kind == W:
            self.weights[rank] += 1
        else:
            arrival = self.arrival(kind, rank)
            if arrival > start:
                if self.forward_end[rank]:
                    self.bubble[rank] += arrival - start
                    self.worst_bubble = max(self.worst_bubble, self.bubble[rank])
                start = arrival
            ends = self.forward_end if kind == F else self.backward_end
            ends[rank].append(start + self.cost[kind][rank])
        self.free[rank] = start + self.cost[kind][rank]
        self.kinds[rank].append(kind)

    def over_limit(self, rank: int) -> int:
        """Half activations too many for one more forward."""
        return self.budget.over(len(self.forward_end[rank]), len(self.backward_end[rank]), self.weights[rank])

    def has_weight(self, rank: int) -> bool:
        return self.weights[rank] < len(self.backward_end[rank])

    def run_weights(self, rank: int) -> None:
        while self.has_weight(rank):
            self.run(W, rank)

    def make_room(self, rank: int) -> None:
        while self.over_limit(rank) > 0:
            self.run(W, rank)

    def fill_gap(self, kind: int, rank: int, choices: _Choices) -> None:
        """Weights into the time until the next F or B can start."""
        arrival = self.arrival(kind, rank)
        while self.has_weight(rank) and self.free[rank] + self.cost[W][rank] <= arrival:
            self.run(W, rank)
        gap = arrival - self.free[rank]
        if self.has_weight(rank) and gap > 0:
            covered = gap <= self.worst_bubble - self.bubble[rank]
            if covered:
                choices.came_up.add(2)
            if choices.fill_covered_gaps or not covered:
                self.run(W, rank)

    def longest_span(self) -> int:
        starts = (ends[0] - cost for ends, cost in zip(self.forward_end, self.times.forward, strict=True))
        return max(free - start for free, start in zip(self.free, starts, strict=True))

    def rows(self) -> list[Rows]:
        return [numbered(np.array(kinds, np.int32)) for kinds in self.kinds]


def _fill(microbatches: int, times: TickTimes, budget: Budget, choices: _Choices) -> _Fill:
    fill = _Fill(microbatches, times, budget)
    for rank in range(times.ranks):
        fill.run(F, rank)
    for rank, ahead in enumerate(_forwards_ahead(fill, choices)):
        for _ in range(ahead):
            fill.run(F, rank)
    for rank in reversed(range(times.ranks)):
        fill.run(B, rank)
    for _ in range(1, microbatches):
        _forward_round(fill, choices)
        _backward_round(fill, choices)
    for rank in range(times.ranks):
        fill.run_weights(rank)
    return fill


def _forward_round(fill: _Fill, choices: _Choices) -> None:
    for rank in range(_first_forward(fill, choices), fill.times.ranks):
        if len(fill.forward_end[rank]) < fill.microbatches:
            fill.make_room(rank)
            if rank:
                fill.fill_gap(F, rank, choices)
            fill.run(F, rank)


def _backward_round(fill: _Fill, choices: _Choices) -> None:
    last = fill.times.ranks - 1
    for rank in range(last, -1, -1):
        if rank < last:
            fill.fill_gap(B, rank, choices)
        if rank == 0 and len(fill.forward_end[0]) == fill.microbatches:
            fill.run_weights(0)
        fill.run(B, rank)


def _forwards_ahead(fill: _Fill, choices: _Choices) -> list[int]:
    """Forwards that each rank runs before the first B, in addition to the first forward; each rank runs fewer than the one before it."""
    times, last = fill.times, fill.times.ranks - 1
    ahead = [0] * times.ranks
    gradient = fill.forward_end[last][0] + times.backward_input[last]
    for rank in range(last - 1, -1, -1):
        arrival, free, cost = gradient + times.p2p[rank], fill.free[rank], times.forward[rank]
        most = min(fill.microbatches, fill.budget.limit) - 1
        while ahead[rank] < most and (free + cost <= arrival if choices.stop_before_first_backward else free < arrival):
            free += cost
            ahead[rank] += 1
        gradient = max(free, arrival) + times.backward_input[rank]
    for rank in range(1, times.ranks):
        # A rank that runs all microbatches ahead keeps them, as far as the one before has run them.
        fewer = 0 if ahead[rank] == fill.microbatches - 1 else 1
        ahead[rank] = min(ahead[rank], max(0, ahead[rank - 1] - fewer))
    return ahead


def _first_forward(fill: _Fill, choices: _Choices) -> int:
    """The first rank to run a forward in this round: one that leaves its own out leaves nothing for those before it."""
    if not choices.spare_forwards:
        choices.came_up.add(1)  # as far as this fill shows
        return 0
    for rank in range(fill.times.ranks - 2, -1, -1):
        if _is_spared(fill, rank):
            choices.came_up.add(1)
            return rank + 1
    return 0


def _is_spared(fill: _Fill, rank: int) -> bool:
    """Whether the rank is ahead by two microbatches and its forward would come in the way of the next rank's B."""
    after, times = rank + 1, fill.times
    done = len(fill.forward_end[rank])
    if done == fill.microbatches or done < len(fill.forward_end[after]) + 2:
        return False
    gradient = fill.free[after] + times.forward[after] + times.backward_input[after] + times.p2p[rank]
    free = fill.free[rank]
    if free >= gradient:
        return True
    freed_by_one = 2 - fill.budget.by_b
    to_free = max(0, min(-(-fill.over_limit(rank) // freed_by_one), len(fill.backward_end[rank]) - fill.weights[rank]))
    if free + times.forward[rank] + to_free * times.backward_weight[rank] <= gradient:
        return False
    return gradient - free <= fill.worst_bubble - fill.bubble[rank]
