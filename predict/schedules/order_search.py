"""Tools of the solvers: trying every setting of some choices, and choosing among orders."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import product
from typing import NamedTuple, TypeVar

import numpy as np

from predict.schedules.engine.costs import TickTimes
from predict.schedules.engine.order import MICROBATCH, B, F, Order, Placement, Rows, W
from predict.schedules.engine.timing import alive, simulate

T = TypeVar("T")
Setting = tuple[bool, ...]


def each_setting(choices: int, trial: Callable[[Setting], tuple[T, set[int]]]) -> list[T]:
    """Results of `trial` for the settings of `choices` choices, all True first.

    A trial also returns the choices that made a difference. Settings that differ from one already tried only in choices that
    made none there are skipped, since their result would be the same.
    """
    tried: list[tuple[Setting, set[int]]] = []
    results: list[T] = []
    for setting in product((True, False), repeat=choices):
        if not any(_differs_in(setting, other).isdisjoint(came_up) for other, came_up in tried):
            result, came_up = trial(setting)
            tried.append((setting, came_up))
            results.append(result)
    return results


EQUAL = 1.0001
"""Makespans this close are equal: a longest span that is shorter by more is worth more, where one step follows another.
(The paper's bubble rates, of spans, come out so too.)"""


class Budget(NamedTuple):
    """The most chunk activations that a rank may hold, in one of two accounts of them."""

    limit: int
    by_b: int
    """Halves of an activation that B lets go: 1 as in Qi et al. (arXiv:2401.10241), 0 where W lets go all of it."""

    def over(self, forwards: int, backwards: int, weights: int) -> int:
        """Half activations by which one more forward would exceed the limit, after these numbers of F, B and W."""
        return 2 * (forwards + 1 - self.limit) - self.by_b * backwards - (2 - self.by_b) * weights


def shortest(orders: Iterable[Sequence[Rows]], placement: Placement, microbatches: int, times: TickTimes) -> list[Rows]:
    """The order with the shortest makespan under these times; of equals that with the shortest longest span, then the
    first. Those after one that no order can beat are not asked for."""
    floor = _floor(microbatches, times)
    found = []
    for rows in orders:
        timeline = simulate(
            Order(rows=tuple(rows), microbatches=microbatches, placement=placement), times.chunk_times()
        )
        found.append((float(timeline.span.max()), timeline.makespan, rows))
        if timeline.makespan <= floor:
            break
    equal = EQUAL * min(makespan for _, makespan, _ in found)
    _, _, best = min((each for each in found if each[1] <= equal), key=lambda each: each[:2])
    return list(best)


def _floor(microbatches: int, times: TickTimes) -> int:
    """No order is shorter: a rank has all its work to do after the first microbatch has come to it."""
    floor = arrival = 0
    for rank in range(times.ranks):
        # Chunk 0 of the ranks holds the first stages, in the loop and in the V.
        own = slice(rank * times.chunks, (rank + 1) * times.chunks)
        work = sum(map(sum, (times.forward[own], times.backward_input[own], times.backward_weight[own])))
        floor = max(floor, arrival + microbatches * work)
        arrival += times.forward[own][0] + (times.p2p[rank] if rank < len(times.p2p) else 0)
    return floor


def peak(rows: Iterable[Rows], released_by_b: float = 0.0) -> float:
    """The most activations that any rank holds, where B lets go this share of one and W the rest."""
    return max(float(alive(row, released_by_b).max()) for row in rows)


def _differs_in(setting: Setting, other: Setting) -> set[int]:
    return {index for index, (mine, theirs) in enumerate(zip(setting, other, strict=True)) if mine != theirs}


AHEAD = (1.0, 1.5, 2.0)
"""Microbatches ahead per rank that follows: 1 as in 1F1B and ZB-H1, 2 as in ZB-H2."""
DELAY = (0.0, 0.5, 1.0)
"""Share of a W that may stick out over a gap; 1 puts it into any."""
FEW = 8
"""Microbatches per rank that suffice to find which numbers suit the steady state."""


def list_orders(microbatches: int, times: TickTimes, budget: Budget) -> Iterator[list[Rows]]:
    """Orders with one chunk per rank that keep the budget; of many microbatches only the one that is best for fewer.

    List scheduling: whenever a rank is free it runs the most urgent action that it can. B comes first, then F, then W, the ranks in the
    order in which they come to act. Two numbers shape the order: how many microbatches a rank may be ahead, and how far a W may delay the
    action that is about to come.
    """
    settings = list(product(AHEAD, DELAY))
    few = FEW * times.ranks
    if microbatches > few:
        settings = [min(settings, key=lambda setting: _Listing(few, times, budget, *setting).makespan())]
    for setting in settings:
        made = _Listing(microbatches, times, budget, *setting)
        if made.makespan() < math.inf:
            yield [numbered(np.array(kinds, np.int32)) for kinds in made.kinds]


def numbered(kinds: Rows) -> Rows:
    """Actions of one chunk from their codes of kinds; each kind has its microbatches in order."""
    made = np.zeros((len(kinds), 4), np.int32)
    made[:, 0] = kinds
    for kind in (F, B, W):
        which = kinds == kind
        made[which, MICROBATCH] = np.arange(np.count_nonzero(which))
    return made


class _Listing:
    def __init__(self, microbatches: int, times: TickTimes, budget: Budget, ahead: float, delay: float) -> None:
        ranks = times.ranks
        self.microbatches, self.times, self.delay, self.last = microbatches, times, delay, ranks - 1
        self.budget = budget
        self.most_ahead = [1 + round(ahead * (ranks - 1 - rank)) for rank in range(ranks)]
        self.cost = (times.forward, times.backward_input, times.backward_weight)
        self.finish_times: tuple[list[list[float]], list[list[float]]] = (
            [[] for _ in range(ranks)],
            [[] for _ in range(ranks)],
        )
        self.weights = [0] * ranks
        self.free: list[float] = [0] * ranks
        self.kinds: list[list[int]] = [[] for _ in range(ranks)]

    def makespan(self) -> float:
        """Run it to its end; infinite if it does not come to one."""
        coming = [self._next(rank) for rank in range(self.times.ranks)]
        waiting = [(start, rank) for rank, (start, _) in enumerate(coming)]
        heapify(waiting)
        for _ in range(3 * self.microbatches * self.times.ranks):
            start, rank = heappop(waiting)
            while start != coming[rank][0]:  # it is not what comes next any more
                start, rank = heappop(waiting)
            if start == math.inf:
                return math.inf
            kind = coming[rank][1]
            self.free[rank] = start + self.cost[kind][rank]
            if kind == W:
                self.weights[rank] += 1
            else:
                self.finish_times[kind][rank].append(self.free[rank])
            self.kinds[rank].append(kind)
            for changed in range(max(0, rank - 1), min(self.last, rank + 1) + 1):
                coming[changed] = self._next(changed)
                heappush(waiting, (coming[changed][0], changed))
        return max(self.free)

    def _next(self, rank: int) -> tuple[float, int]:
        """Start time and kind of the rank's next action; infinite if it waits for another rank."""
        free = self.free[rank]
        backward, forward = self._backward(rank), self._forward(rank)
        if backward <= free:
            return free, B
        if forward <= free:
            return free, F
        start, kind = min((backward, B), (forward, F))
        if self.weights[rank] < len(self.finish_times[B][rank]):
            sticks_out = free + self.cost[W][rank] - start
            if sticks_out <= self.delay * self.cost[W][rank]:
                return free, W
        return start, kind

    def _backward(self, rank: int) -> float:
        done = len(self.finish_times[B][rank])
        if rank == self.last:
            finish, delay = self.finish_times[F][rank], 0.0
        else:
            finish, delay = self.finish_times[B][rank + 1], self.times.p2p[rank]
        return finish[done] + delay if done < len(finish) else math.inf

    def _forward(self, rank: int) -> float:
        done, backwards = len(self.finish_times[F][rank]), len(self.finish_times[B][rank])
        if done == self.microbatches or done - backwards >= self.most_ahead[rank]:
            return math.inf
        if self.budget.over(done, backwards, self.weights[rank]) > 0:
            return math.inf
        if rank == 0:
            return 0.0
        finish = self.finish_times[F][rank - 1]
        return finish[done] + self.times.p2p[rank - 1] if done < len(finish) else math.inf
