"""Figures of an order of plans: how it agrees with their measured times, and what following it costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from predict.validation.published.constant_mfu import DISTINCT
from predict.validation.ranking.plans import MeasuredPlan

NEAR_BEST = 1.02
"""A plan within 2 % of the best is as good: repeats of one run differ by as much."""
Order = Callable[[MeasuredPlan], tuple[float, ...]]
"""The key that an order sorts plans by; equal keys are ties."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Following:
    """The launches of plans in an order, one after the other; a plan that runs out of memory costs one too."""

    regret: float
    """Time of the first plan that runs over the best plan's, less 1."""
    oom_before: int
    """Plans that run out of memory before it."""
    launches: int
    """Launches until one is within NEAR_BEST of the best."""


def following(plans: Sequence[MeasuredPlan], order: Order) -> Following:
    """The launches of plans sorted by `order`; one of them at least has a time. Ties are launched as they are listed."""
    launched = sorted(plans, key=order)
    best = best_us(plans)
    times = [math.inf if plan.measured_us is None else plan.measured_us for plan in launched]
    first = next(place for place, time in enumerate(times) if time < math.inf)
    return Following(
        regret=times[first] / best - 1,
        oom_before=first,
        launches=1 + next(place for place, time in enumerate(times) if time <= NEAR_BEST * best),
    )


def best_us(plans: Sequence[MeasuredPlan]) -> float:
    return min(plan.measured_us for plan in plans if plan.measured_us is not None)


def by_prediction(plan: MeasuredPlan) -> tuple[float, ...]:
    """Plans that are said to fit by predicted time, then the others by predicted time."""
    return (not plan.said_to_fit, plan.predicted.median_us)


def by_time(plan: MeasuredPlan) -> tuple[float, ...]:
    return (plan.predicted.median_us,)


@dataclass(frozen=True, kw_only=True, slots=True)
class Agreement:
    """Pairs more than 5 % apart as an order has them. `tau` is Kendall's τ-b, NaN without an ordered pair."""

    pairs: int
    tau: float


def agreement(plans: Sequence[MeasuredPlan], order: Order, *, same_kernels: bool = False) -> Agreement:
    """τ-b = (C − D) / √((C + D)(C + D + T)), T the pairs tied by the order (Kendall, Biometrika 33, 1945); no measured pair is tied.

    `same_kernels`: only pairs that agree in kernels and recomputation.
    """
    right = wrong = tied = 0
    for faster, slower in _distinct_pairs(plans):
        if same_kernels and faster.kernels != slower.kernels:
            continue
        first, second = order(faster), order(slower)
        tied += first == second
        right += first < second
        wrong += second < first
    pairs = right + wrong + tied
    ordered = right + wrong
    return Agreement(pairs=pairs, tau=(right - wrong) / math.sqrt(ordered * pairs) if ordered else math.nan)


def _distinct_pairs(plans: Sequence[MeasuredPlan]) -> Iterator[tuple[MeasuredPlan, MeasuredPlan]]:
    """Pairs of timed plans more than 5 % apart, the faster one first."""
    timed = sorted((plan for plan in plans if plan.measured_us is not None), key=lambda plan: plan.measured_us or 0.0)
    for faster, slower in combinations(timed, 2):
        if (slower.measured_us or 0.0) > DISTINCT * (faster.measured_us or 0.0):
            yield faster, slower
