"""Equally likely runs as one answer."""

from __future__ import annotations

import math

import pytest

from predict.step.interval import Interval, one_interval, widened

FAST = Interval(median_us=100.0, low_us=90.0, high_us=120.0)
SLOW = Interval(median_us=400.0, low_us=380.0, high_us=440.0)


def test_one_run_is_its_own_answer() -> None:
    alone = one_interval([FAST])
    assert alone.median_us == pytest.approx(FAST.median_us)
    assert (alone.low_us, alone.high_us) == (FAST.low_us, FAST.high_us)


def test_the_median_is_the_geometric_mean_within_the_widest_bounds() -> None:
    both = one_interval([FAST, SLOW])
    assert both.median_us == pytest.approx(200)
    assert (both.low_us, both.high_us) == (90, 440)


def test_a_further_width_adds_in_quadrature_on_either_side() -> None:
    wide = widened(FAST, 0.3)
    assert math.log(wide.high_us / 100) == pytest.approx(math.hypot(0.3, math.log(1.2)))
    assert math.log(100 / wide.low_us) == pytest.approx(math.hypot(0.3, math.log(100 / 90)))
    assert one_interval([FAST, SLOW], 0.3).high_us == pytest.approx(widened(SLOW, 0.3).high_us)
