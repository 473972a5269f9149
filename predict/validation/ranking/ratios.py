"""Intervals of the ratio of two plans' times, by which a search calls plans ties, held against measured ratios."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from predict.plan_search.answer import ratio
from predict.validation.ranking.plans import MeasuredPlan


@dataclass(frozen=True, kw_only=True, slots=True)
class RatioCoverage:
    """Shares of pairs of timed plans whose measured ratio lies in the 90 % interval of the predicted one; NaN without a pair."""

    pairs: int
    ratio_coverage: float
    tied_pairs: int
    """Pairs whose interval holds 1: ties, as a search calls them."""
    tie_coverage: float


def ratio_coverage(plans: Sequence[MeasuredPlan]) -> RatioCoverage:
    """The coverage over all pairs, in each of which the plan that is predicted to be faster stands for the best one."""
    timed = sorted((plan for plan in plans if plan.measured_us is not None), key=lambda plan: plan.contender.value)
    inside, tied_inside = [], []
    for first, second in combinations(timed, 2):
        predicted = ratio(first.contender, second.contender)
        measured = (second.measured_us or math.nan) / (first.measured_us or math.nan)
        inside.append(predicted.covers(measured))
        if predicted.tied:
            tied_inside.append(inside[-1])
    return RatioCoverage(
        pairs=len(inside),
        ratio_coverage=_share(inside),
        tied_pairs=len(tied_inside),
        tie_coverage=_share(tied_inside),
    )


def _share(found: Sequence[bool]) -> float:
    return sum(found) / len(found) if found else math.nan
