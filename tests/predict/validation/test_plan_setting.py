"""The width of the ratio of two plans per differing setting, learnt from groups of measured plans."""

from __future__ import annotations

import math

import pytest

from predict.interval import Interval
from predict.plan_search.answer import Contender
from predict.prices.published_constants import PLAN_SETTING
from predict.validation.published_row import PublishedRow
from predict.validation.ranking import MeasuredPlan
from predict.validation.widths import learn_plan_setting
from sampling.errors import UserError


def group(source: str, error: float) -> list[MeasuredPlan]:
    """Three plans, predicted 1 % apart, one setting from each other; measured times are `error` apart in log time beyond that."""
    predicted = [100.0 * math.exp(0.01 * place) for place in range(3)]
    return [
        MeasuredPlan(
            row=PublishedRow(cells={"row_id": source, "source_id": source}),
            settings=(),
            measured=value * math.exp(error * place),
            predicted=Interval(median=value, low=value, high=value),
            contender=Contender(value=value, per_setting=PLAN_SETTING.value, settings=(place,)),
            verdict="FITS",
        )
        for place, value in enumerate(predicted)
    ]


def test_each_source_needs_what_holds_its_ratios_and_the_median_is_learnt() -> None:
    """Plans 0 and 2 differ by twice the error, in one setting."""
    learnt = learn_plan_setting({name: group(name, error) for name, error in (("a", 0.02), ("b", 0.05), ("c", 0.2))})
    needed = {one.source: one.width for one in learnt.sources}
    assert needed == {
        name: pytest.approx(2 * error, abs=0.006) for name, error in (("a", 0.02), ("b", 0.05), ("c", 0.2))
    }
    assert (learnt.low, learnt.width, learnt.high) == tuple(sorted(needed.values()))
    (far,) = [one for one in learnt.sources if one.source == "c"]
    assert far.by_others == pytest.approx(0.07, abs=0.006)
    assert (far.pairs, far.coverage_by_others) == (3, 0.0)


def test_a_table_without_a_group_is_refused() -> None:
    with pytest.raises(UserError, match="--truth"):
        learn_plan_setting({"a": group("a", 0.1)[:2]})
