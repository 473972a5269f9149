"""Groups of measured plans judged: order, launches, feasibility and level, beside choices that need no prediction."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from predict.serialise import version_of
from predict.validation.ranking.baselines import best_of_random_regret, by_rule, random_launches, random_regret
from predict.validation.ranking.plans import MeasuredPlan
from predict.validation.ranking.ratios import RatioCoverage, ratio_coverage
from predict.validation.ranking.scores import Following, Order, agreement, best_us, by_prediction, by_time, following

LEAST_TIMED = 3
"""Timed plans that make a group: the order of two is a coin's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OrderScores:
    """An order's figures, as fractions; NaN without a pair to judge."""

    tau: float
    tau_same_class: float
    regret: float
    oom_before: float
    launches: float


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupScores:
    """A group's figures. `oom_recall` is the share of plans out of memory that are said not to fit, `false_oom` that of timed
    plans; NaN where there are none."""

    group: str
    plans: int
    timed: int
    pairs: int
    pairs_same_class: int
    best_us: float
    ours: OrderScores
    rule: OrderScores
    """The four lines of `by_rule`; its regret is that of one who is told what fits, its launches are not."""
    random_regret: float
    best_of_five_regret: float
    random_launches: float
    oom_recall: float
    false_oom: float
    bias: float
    coverage: float
    ratios: RatioCoverage


def judged(groups: Mapping[str, Sequence[MeasuredPlan]]) -> tuple[list[GroupScores], int]:
    """The figures of each group of LEAST_TIMED timed plans or more, and how many other groups there are."""
    large = large_groups(groups)
    return [_scores(name, plans) for name, plans in large.items()], len(groups) - len(large)


def large_groups(groups: Mapping[str, Sequence[MeasuredPlan]]) -> dict[str, Sequence[MeasuredPlan]]:
    """The groups of LEAST_TIMED timed plans or more."""
    return {name: plans for name, plans in groups.items() if len(_timed(plans)) >= LEAST_TIMED}


def _timed(plans: Sequence[MeasuredPlan]) -> list[MeasuredPlan]:
    return [plan for plan in plans if plan.measured_us is not None]


def _scores(group: str, plans: Sequence[MeasuredPlan]) -> GroupScores:
    timed = _timed(plans)
    errors = [plan.predicted.median_us / (plan.measured_us or math.nan) - 1 for plan in timed]
    inside = [plan.predicted.low_us <= (plan.measured_us or math.nan) <= plan.predicted.high_us for plan in timed]
    return GroupScores(
        group=group,
        plans=len(plans),
        timed=len(timed),
        pairs=agreement(plans, by_time).pairs,
        pairs_same_class=agreement(plans, by_time, same_kernels=True).pairs,
        best_us=best_us(plans),
        ours=_order_scores(plans, by_time, following(plans, by_prediction)),
        rule=_order_scores(plans, by_rule, following(plans, by_rule)),
        random_regret=random_regret(plans),
        best_of_five_regret=best_of_random_regret(plans),
        random_launches=random_launches(plans),
        oom_recall=_mean(not plan.said_to_fit for plan in plans if plan.measured_us is None),
        false_oom=_mean(not plan.said_to_fit for plan in timed),
        bias=fmean(errors),
        coverage=fmean(inside),
        ratios=ratio_coverage(plans),
    )


def _order_scores(plans: Sequence[MeasuredPlan], order: Order, followed: Following) -> OrderScores:
    return OrderScores(
        tau=agreement(plans, order).tau,
        tau_same_class=agreement(plans, order, same_kernels=True).tau,
        regret=followed.regret,
        oom_before=followed.oom_before,
        launches=followed.launches,
    )


def _mean(values: Iterable[float]) -> float:
    """The mean of the values that are numbers; NaN without one."""
    known = [value for value in values if not math.isnan(value)]
    return fmean(known) if known else math.nan


def summary(groups: Sequence[GroupScores]) -> dict[str, float]:
    """Means over the groups: each group is one choice that a user makes, however many plans were tried."""

    def mean(of: Callable[[GroupScores], float]) -> float:
        return _mean(map(of, groups))

    return {
        **_order_means(groups, lambda one: one.ours),
        "within_two_launches": mean(lambda one: one.ours.launches <= 2),
        "oom_recall": mean(lambda one: one.oom_recall),
        "false_oom": mean(lambda one: one.false_oom),
        "bias": mean(lambda one: one.bias),
        "coverage": mean(lambda one: one.coverage),
        "ratio_coverage": mean(lambda one: one.ratios.ratio_coverage),
        "tie_coverage": mean(lambda one: one.ratios.tie_coverage),
        "random_regret": mean(lambda one: one.random_regret),
        "best_of_five_regret": mean(lambda one: one.best_of_five_regret),
        "random_launches": mean(lambda one: one.random_launches),
        **{f"rule_{name}": value for name, value in _order_means(groups, lambda one: one.rule).items()},
    }


def _order_means(groups: Sequence[GroupScores], order: Callable[[GroupScores], OrderScores]) -> dict[str, float]:
    scores = [asdict(order(one)) for one in groups]
    names = ("tau", "tau_same_class", "regret", "oom_before", "launches")
    return {name: _mean(one[name] for one in scores) for name in names}


def as_json(groups: Sequence[GroupScores], small: int, left_out: Sequence[str]) -> dict[str, Any]:
    """Fractions, not percent; null where there is nothing to judge."""
    return {
        "version": version_of("validate-ranking"),
        "summary": _null_for_nan(summary(groups)),
        "groups": [_group_json(one) for one in groups],
        "smaller_groups": small,
        "left_out": list(left_out),
    }


def _group_json(one: GroupScores) -> dict[str, Any]:
    figures = asdict(one)
    ours, rule, ratios = (figures.pop(name) for name in ("ours", "rule", "ratios"))
    of_ratios = {name: ratios[name] for name in ("ratio_coverage", "tied_pairs", "tie_coverage")}
    return _null_for_nan({**figures, **of_ratios, **ours, **{f"rule_{name}": value for name, value in rule.items()}})


def _null_for_nan(figures: Mapping[str, Any]) -> dict[str, Any]:
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in figures.items()}
