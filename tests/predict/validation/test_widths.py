"""Widths learnt from published runs."""

import math

import pytest

from predict.interval import Interval
from predict.plan_search.answer import Contender
from predict.prices.published_constants import CONSTANTS
from predict.validation.published_row import PublishedRow
from predict.validation.ranking import MeasuredPlan
from predict.validation.widths import EVERY, MIXTURE, Known, learn_plan_setting, learnt_widths
from sampling.errors import UserError


def _known(source: str, error: float, *unknowns: str, framework: str = "nemo") -> Known:
    """A configuration whose prediction is off by `error` in log time, and whose calls leave it ±1 %."""
    return Known(
        source=source,
        judged_as="dense, complete",
        measured_us=100.0 * math.exp(-error),
        framework=framework,
        unknowns=(EVERY, *unknowns),
        intervals=(Interval(median=100.0, low=99.0, high=101.0),),
    )


def test_a_width_contains_nine_in_ten() -> None:
    known = [_known("a", 0.01 * error) for error in range(1, 11)]
    (width,) = [one for one in learnt_widths(known).widths if one.unknown == EVERY]
    assert 0.085 <= width.width <= 0.095


def test_a_stack_whose_runs_scatter_widens_its_own_steps_alone() -> None:
    known = [
        *([_known("a", 0.05)] * 40),
        *([_known("b", 0.05, framework="maxtext")] * 40),
        *([_known("c", 0.3, framework="torchtitan")] * 20),
    ]
    widths = {one.unknown: one.width for one in learnt_widths(known).widths}
    assert widths[EVERY] == pytest.approx(0.05, abs=0.006)
    assert math.hypot(widths[EVERY], widths["torchtitan"]) == pytest.approx(0.3, abs=0.006)


def test_a_later_unknown_adds_only_what_earlier_ones_leave() -> None:
    known = [_known("a", 0.1) for _ in range(10)] + [_known("a", 0.2, MIXTURE) for _ in range(10)]
    widths = {one.unknown: one.width for one in learnt_widths(known).widths}
    assert math.hypot(widths[EVERY], widths[MIXTURE]) == pytest.approx(0.2, abs=0.006)


def test_a_long_sweep_does_not_speak_for_other_sources() -> None:
    sweep = [_known("sweep", 0.01)] * 400
    others = [_known(source, 0.2) for source in ("b", "c", "d") for _ in range(4)]
    (width,) = [one for one in learnt_widths(sweep + others).widths if one.unknown == EVERY]
    assert width.width == pytest.approx(0.2, abs=0.006)


def test_a_source_is_judged_with_the_widths_that_others_teach() -> None:
    known = [_known("near", 0.05)] * 10 + [_known("far", 0.5)] * 10
    (judged,) = learnt_widths(known).left_out
    assert judged.coverage == 0.5
    assert judged.configurations == 20


# The width of the ratio of two plans per differing setting, learnt from groups of measured plans.


def group(source: str, error: float) -> list[MeasuredPlan]:
    """Three plans, predicted 1 % apart, one setting from each other; measured times are `error` apart in log time beyond that."""
    predicted = [100.0 * math.exp(0.01 * place) for place in range(3)]
    return [
        MeasuredPlan(
            row=PublishedRow(cells={"row_id": source, "source_id": source}),
            settings=(),
            measured=value * math.exp(error * place),
            predicted=Interval(median=value, low=value, high=value),
            contender=Contender(value=value, per_setting=CONSTANTS["PLAN_SETTING"].value, settings=(place,)),
            verdict="FITS",
            fits_probability=0.99,
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
