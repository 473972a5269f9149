"""What the solvers share: trying every setting of some choices, and choosing among orders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import TypeVar

import numpy as np

from predict.schedules.costs import StageTimes
from predict.schedules.engine import simulate
from predict.schedules.order import KIND, Order, Placement, Rows

T = TypeVar("T")
Setting = tuple[bool, ...]


def each_setting(choices: int, trial: Callable[[Setting], tuple[T, set[int]]]) -> list[T]:
    """What the trial makes of every setting of so many choices, all True first.

    With its result the trial tells which choices came up. Settings that differ from one already tried only in choices
    that did not come up there are left out: they would come to the same.
    """
    tried: list[tuple[Setting, set[int]]] = []
    results: list[T] = []
    for setting in product((True, False), repeat=choices):
        if not any(_differs_in(setting, other).isdisjoint(came_up) for other, came_up in tried):
            result, came_up = trial(setting)
            tried.append((setting, came_up))
            results.append(result)
    return results


def shortest(
    orders: Iterable[Sequence[Rows]], placement: Placement, microbatches: int, times: StageTimes
) -> list[Rows]:
    """The order to keep under these times.

    Of even stages that with the shortest longest span, the measure of the zero-bubble papers, and of those the one with
    the shortest makespan; of uneven stages the other way round, since a step lasts its makespan.
    """

    def measure(rows: Iterable[Rows]) -> tuple[float, float]:
        order = Order(rows=tuple(rows), microbatches=microbatches, placement=placement)
        timeline = simulate(order, times.chunk_times())
        both = timeline.makespan, float(timeline.span.max())
        return both[::-1] if times.is_even else both

    best: Sequence[Rows] = min(orders, key=measure)
    return list(best)


def peak(rows: Iterable[Rows], released_by_b: float) -> float:
    """The most activations that any rank holds, where B lets go this share of one and W the rest."""
    change = np.array([1, -released_by_b, released_by_b - 1, -1])
    return max(float(np.cumsum(change[row[:, KIND]]).max()) for row in rows)


def _differs_in(setting: Setting, other: Setting) -> set[int]:
    return {index for index, (mine, theirs) in enumerate(zip(setting, other, strict=True)) if mine != theirs}
