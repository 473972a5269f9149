"""Width of the ratio of two plans for each setting in which they differ, learnt from groups of measured plans.

Each source needs the least width at which its intervals of measured ratios contain 90 %. The median over the sources is
learnt: pairs of one group share runs, so a long sweep of one stack says no more than a short one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

from predict.prices.published_constants import PLAN_SETTING
from predict.serialise import version_of
from predict.validation.learning.widths import LEVEL, TRIED
from predict.validation.ranking.group_scores import large_groups
from predict.validation.ranking.plans import MeasuredPlan
from predict.validation.ranking.ratios import ratio_coverage
from sampling.errors import UserError


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceNeed:
    """The width that one source's ratios need, and that of the other sources; widths are half-widths in log time."""

    source: str
    pairs: int
    width: float
    by_others: float
    """The width that the other sources teach; its own where there are none."""
    coverage_by_others: float


@dataclass(frozen=True, kw_only=True, slots=True)
class LearntPlanSetting:
    """The learnt half-width in log time per differing setting, and the least and the greatest that a source needs."""

    width: float
    low: float
    high: float
    sources: tuple[SourceNeed, ...]


def learn_plan_setting(groups: Mapping[str, Sequence[MeasuredPlan]]) -> LearntPlanSetting:
    """The learnt width. UserError where no group has plans enough to judge."""
    by_source: dict[str, list[Sequence[MeasuredPlan]]] = {}
    for plans in large_groups(groups).values():
        by_source.setdefault(plans[0].row.text("source_id"), []).append(plans)
    if not by_source:
        raise UserError("--widths: no group of the table has three timed plans; give a table that has one with --truth")
    covered = {source: _covered(of_source) for source, of_source in by_source.items()}
    needs = {source: _need(of_width) for source, of_width in covered.items()}
    return LearntPlanSetting(
        width=median(needs.values()),
        low=min(needs.values()),
        high=max(needs.values()),
        sources=tuple(_source(source, by_source[source], covered[source], needs) for source in sorted(by_source)),
    )


def _covered(groups: Iterable[Sequence[MeasuredPlan]]) -> Callable[[float], float]:
    """The share of a source's measured ratios that a width contains."""
    scaled = [list(plans) for plans in groups]

    def at(width: float) -> float:
        found = [ratio_coverage([_with_width(plan, width) for plan in plans]) for plans in scaled]
        return sum(one.pairs * one.ratio_coverage for one in found) / sum(one.pairs for one in found)

    return at


def _with_width(plan: MeasuredPlan, width: float) -> MeasuredPlan:
    contender = plan.contender
    return replace(plan, contender=replace(contender, per_setting=contender.per_setting * width / PLAN_SETTING.value))


def _need(covered: Callable[[float], float]) -> float:
    """The least width that contains LEVEL of the ratios, which a wider one never loses; the greatest tried where none does."""
    low, high = 0, len(TRIED) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if covered(TRIED[middle]) >= LEVEL else (middle + 1, high)
    return TRIED[low]


def _source(
    source: str,
    groups: Sequence[Sequence[MeasuredPlan]],
    covered: Callable[[float], float],
    needs: Mapping[str, float],
) -> SourceNeed:
    by_others = median([need for other, need in needs.items() if other != source] or [needs[source]])
    timed = [sum(plan.measured_us is not None for plan in plans) for plans in groups]
    return SourceNeed(
        source=source,
        pairs=sum(count * (count - 1) // 2 for count in timed),
        width=needs[source],
        by_others=by_others,
        coverage_by_others=covered(by_others),
    )


def plan_setting_json(learnt: LearntPlanSetting) -> dict[str, Any]:
    return {"version": version_of("learn-plan-setting"), **asdict(learnt)}
