"""Widths learnt from published runs."""

from __future__ import annotations

import math

import pytest

from predict.interval import Interval
from predict.validation.widths import EVERY, MIXTURE, Known, learnt_widths


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
