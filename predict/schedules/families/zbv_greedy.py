"""ZB-V solved for the actual times of the stages, under a limit on the memory.

A microbatch takes four legs: forward down the ranks, forward back up, backward down, backward back up. After the warm-up
every rank runs at most one backward leg and one forward leg a round, and a W wherever it would wait longer than a W
takes, than the worst rank has waited, or must make room. Two choices that no rule decides well are tried both ways, each
again with the bubbles of the try before allowed from the start, and the fill with the least bubble is kept.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from predict.schedules.building import solved, two_chunks
from predict.schedules.engine.costs import TickTimes
from predict.schedules.engine.order import CODE, Rows, W, v_shape
from predict.schedules.families.v_half import BACK_DOWN, BACK_UP, CONTROLLABLE_MEMORY, DOWN, LEGS, UP, v_half, v_min
from predict.schedules.families.zbv import zbv
from predict.schedules.order_search import Setting, each_setting, peak, shortest
from sampling.errors import InfeasibleError


@solved(
    "zbv-greedy",
    citation=f"{CONTROLLABLE_MEMORY}; the greedy ZB-V of arXiv:2401.10241, section 6",
    supports=two_chunks,
    placement=v_shape,
)
def zbv_greedy(microbatches: int, times: TickTimes, limit: int | None) -> list[Rows]:
    """Holds at most `limit` chunk activations on every rank (default 2p). InfeasibleError if that is too few.

    The fill is compared with the formatted ZB-V, V-half and V-min, each where it keeps the limit. It is made for even
    stages; for uneven ones, where it may come to a dead end, their means are tried as well.
    """
    most = 2 * times.ranks if limit is None else limit
    by_hand = [solve(times.ranks, 2, microbatches) for solve in (zbv, v_half, v_min)]
    least = round(min(map(peak, by_hand)))
    if least > most:
        raise InfeasibleError(f"cannot run within {most} chunk activations; give {least} or more")
    orders = [*_fills(microbatches, times, most), *(rows for rows in by_hand if peak(rows) <= most)]
    return shortest(orders, v_shape(times.ranks, 2), microbatches, times)


def _fills(microbatches: int, times: TickTimes, limit: int) -> Iterator[Sequence[Rows]]:
    for each in dict.fromkeys((times.evened(), times)):
        with contextlib.suppress(_DeadEndError):
            yield _filled(microbatches, each, limit)


def _filled(microbatches: int, times: TickTimes, limit: int) -> list[Rows]:
    def trial(setting: Setting) -> tuple[_Fill, set[int]]:
        choices = _Choices(setting[0], setting[1])
        return _improved(microbatches, times, limit, choices), choices.came_up

    return min(each_setting(2, trial), key=lambda fill: fill.worst_bubble).rows()


class _DeadEndError(Exception):
    """The next action of the fill has no input yet, or no room."""


@dataclass(frozen=True, slots=True)
class _Choices:
    fill_before_backwards: bool
    """Put one more W into a gap before a backward down that is too short for it, unless other ranks have waited longer."""
    fill_before_forwards: bool
    """The same before a forward."""
    came_up: set[int] = field(default_factory=set)
    """Which of the two, counted from 0, have made a difference so far."""

    def fill_short_gap(self, leg: int) -> bool:
        if leg == BACK_UP:
            return True
        choice = 0 if leg == BACK_DOWN else 1
        self.came_up.add(choice)
        return self.fill_before_forwards if choice else self.fill_before_backwards


def _improved(microbatches: int, times: TickTimes, limit: int, choices: _Choices) -> _Fill:
    best: _Fill | None = None
    allowed: list[int] | None = None
    while True:
        fill = _Fill(microbatches, times, limit, allowed)
        fill.warm_up()
        for _ in range(2 * microbatches):
            fill.run_backwards(choices)
            fill.run_forwards(choices)
        fill.finish()
        if best is not None and fill.worst_bubble >= best.worst_bubble:
            return best
        best, allowed = fill, fill.bubble


class _Fill:
    """The actions run so far, and their end times."""

    def __init__(self, microbatches: int, times: TickTimes, limit: int, allowed: list[int] | None) -> None:
        ranks = times.ranks
        self.microbatches, self.times, self.limit, self.last = microbatches, times, limit, ranks - 1
        cost = (times.forward, times.backward_input, times.backward_weight)
        self.leg_cost = [[cost[CODE[kind]][2 * rank + chunk] for rank in range(ranks)] for kind, chunk in LEGS]
        self.weight_cost = cost[W]
        self.finish_times: list[list[list[int]]] = [[[] for _ in range(ranks)] for _ in LEGS]
        self.free = [0] * ranks
        self.live_activations = [0] * ranks
        self.bubble = [0] * ranks
        self.worst_bubble = 0
        most = max(allowed) if allowed else 0
        self.head_start = [most - of_rank for of_rank in allowed] if allowed else [0] * ranks
        self.pending: list[deque[tuple[int, int]]] = [deque() for _ in range(ranks)]
        self.made: list[list[tuple[int, int, int, int]]] = [[] for _ in range(ranks)]

    def done(self, leg: int, rank: int) -> int:
        return len(self.finish_times[leg][rank])

    def has_input(self, leg: int, rank: int) -> bool:
        """Whether the rank before on this leg has run it for the next microbatch."""
        other = rank - 1 if leg in (DOWN, BACK_DOWN) else rank + 1
        return not 0 <= other <= self.last or self.done(leg, other) > self.done(leg, rank)

    def arrival(self, leg: int, rank: int) -> int | None:
        """When the next of this leg comes from another rank; None where it comes from none."""
        if not self.has_input(leg, rank):
            raise _DeadEndError
        if leg in (DOWN, BACK_DOWN):
            if rank == 0:
                return None
            # Backward legs pass the stages the other way.
            edge = rank - 1 if leg == DOWN else 2 * self.last - rank + 1
            return self.finish_times[leg][rank - 1][self.done(leg, rank)] + self.times.p2p[edge]
        if rank == self.last:
            return None
        edge = 2 * self.last - rank if leg == UP else rank
        return self.finish_times[leg][rank + 1][self.done(leg, rank)] + self.times.p2p[edge]

    def run(self, leg: int, rank: int) -> None:
        kind, chunk = LEGS[leg]
        if kind == "F":
            self.make_room(rank)
            self.live_activations[rank] += 1
        start = self.free[rank]
        arrival = self.arrival(leg, rank)
        if arrival is not None and arrival > start:
            if self.finish_times[DOWN][rank]:
                self.bubble[rank] += arrival - start
                self.worst_bubble = max(self.worst_bubble, self.bubble[rank])
            start = arrival
        microbatch = self.done(leg, rank)
        self.free[rank] = start + self.leg_cost[leg][rank]
        self.finish_times[leg][rank].append(self.free[rank])
        self.made[rank].append((CODE[kind], microbatch, chunk, 0))
        if kind == "B":
            self.pending[rank].append((microbatch, chunk))

    def run_weight(self, rank: int) -> None:
        if not self.pending[rank]:
            raise _DeadEndError
        microbatch, chunk = self.pending[rank].popleft()
        self.free[rank] += self.weight_cost[2 * rank + chunk]
        self.live_activations[rank] -= 1
        self.made[rank].append((W, microbatch, chunk, 0))

    def make_room(self, rank: int) -> None:
        while self.live_activations[rank] >= self.limit:
            self.run_weight(rank)

    def fill_gap(self, leg: int, rank: int, choices: _Choices) -> None:
        """Weights into the time until the leg can start; perhaps one more into the rest of it, if that is more than the
        rank may still wait without being the worst."""
        arrival = self.arrival(leg, rank)
        if arrival is None:
            return
        pending = self.pending[rank]
        while pending and arrival >= self.free[rank] + self.weight_cost[2 * rank + pending[0][1]]:
            self.run_weight(rank)
        slack = max(self.worst_bubble, self.head_start[rank]) - self.bubble[rank]
        if pending and arrival - self.free[rank] > slack and choices.fill_short_gap(leg):
            self.run_weight(rank)

    def warm_up(self) -> None:
        for rank in range(self.times.ranks):
            self.run(DOWN, rank)
        self.run(UP, self.last)
        for rank in range(self.last - 1, -1, -1):
            arrival = self.arrival(UP, rank)
            assert arrival is not None
            while (
                self.live_activations[rank] + 2 * (rank + 1) <= self.limit
                and self.free[rank] + self.leg_cost[DOWN][rank] <= arrival
                and self.done(DOWN, rank) < self.microbatches
            ):
                for before in range(rank + 1):
                    self.run(DOWN, before)
            self.run(UP, rank)
        self._level_out()

    def _level_out(self) -> None:
        """Forwards of the later ranks, chunks in turn, until no rank has run fewer than the one before it."""
        leg = DOWN
        for rank in range(1, self.times.ranks):
            while self._is_behind(rank):
                for later in range(self.last, rank - 1, -1):
                    if self.done(leg, later) < self.microbatches:
                        self.run(leg, later)
                leg = UP if leg == DOWN else DOWN

    def _is_behind(self, rank: int) -> bool:
        here, before = ([self.done(leg, at) for leg in (DOWN, UP)] for at in (rank, rank - 1))
        return sum(here) < sum(before) or here[1] <= before[1] < self.microbatches

    def run_backwards(self, choices: _Choices) -> None:
        legs = [self._backward_leg(rank) for rank in range(self.times.ranks)]
        ups = [rank for rank in range(self.last, -1, -1) if legs[rank] == BACK_UP]
        downs = [rank for rank, leg in enumerate(legs) if leg == BACK_DOWN]
        for rank in ups + downs:
            self.fill_gap(legs[rank], rank, choices)
            self.run(legs[rank], rank)

    def _backward_leg(self, rank: int) -> int:
        if self.done(BACK_UP, rank) >= self.done(BACK_DOWN, rank):
            return BACK_DOWN
        if self.has_input(BACK_UP, rank) or self.done(BACK_DOWN, rank) == self.microbatches:
            return BACK_UP
        return BACK_DOWN

    def run_forwards(self, choices: _Choices) -> None:
        for rank in range(self.times.ranks):
            leg = self._forward_leg(rank)
            if leg is not None:
                self.make_room(rank)
                self.fill_gap(leg, rank, choices)
                self.run(leg, rank)

    def _forward_leg(self, rank: int) -> int | None:
        down, up = self.done(DOWN, rank), self.done(UP, rank)
        if up == self.microbatches:
            return None
        if up >= down:
            return DOWN
        if self.has_input(UP, rank):
            return UP
        return DOWN if down < self.microbatches and self.has_input(DOWN, rank) else None

    def finish(self) -> None:
        for rank, pending in enumerate(self.pending):
            while pending:
                self.run_weight(rank)

    def rows(self) -> list[Rows]:
        return [np.array(made, np.int32) for made in self.made]
