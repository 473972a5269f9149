"""Tools of the solvers: trying every setting of some choices, and choosing among orders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import NamedTuple, TypeVar

from predict.schedules.engine.costs import TickTimes
from predict.schedules.engine.order import Order, Placement, Rows
from predict.schedules.engine.timeline import alive
from predict.schedules.engine.timing import simulate

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
