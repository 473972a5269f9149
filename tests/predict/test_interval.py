"""The interval, and the rules by which widths add up."""

import math

import pytest

from predict.interval import (
    Interval,
    equally_likely,
    from_shifts,
    independent,
    independent_causes,
    longer,
    shared_causes,
    together,
    without_cause,
)

FAST = Interval(median=100.0, low=90.0, high=120.0)
SLOW = Interval(median=400.0, low=380.0, high=440.0)


def close(found: Interval, median: float, low: float, high: float) -> None:
    assert (found.median, found.low, found.high) == pytest.approx((median, low, high))


def test_a_half_width_is_that_of_the_logarithm() -> None:
    found = Interval.from_log(100.0, 0.25)
    close(found, 100, 100 * math.exp(-0.25), 100 * math.exp(0.25))
    assert found.half_width_log == pytest.approx(0.25)
    assert found.covers(80) and not found.covers(70)
    assert Interval.exactly(3.0).half_width_log == 0


def test_a_factor_moves_all_three_and_an_inverse_swaps_the_bounds() -> None:
    close(FAST.scaled(2), 200, 180, 240)
    close(FAST.ratio_to(50), 2, 1.8, 2.4)
    close(FAST.dividing(3600), 36, 30, 40)
    assert Interval(median=2.0, low=0.0, high=3.0).dividing(6).high == math.inf


def test_errors_in_common_add_linearly_and_others_in_quadrature() -> None:
    close(together([FAST, SLOW]), 500, 470, 560)
    close(independent([FAST, SLOW]), 500, 500 - math.hypot(10, 20), 500 + math.hypot(20, 40))
    assert shared_causes(0.3, 0.4) == pytest.approx(0.7)
    assert independent_causes(0.3, 0.4) == pytest.approx(0.5)
    assert without_cause(0.5, 0.4) == pytest.approx(0.3)


def test_a_further_cause_widens_either_side() -> None:
    wide = FAST.widened(0.3)
    assert math.log(wide.high / 100) == pytest.approx(math.hypot(0.3, math.log(1.2)))
    assert math.log(100 / wide.low) == pytest.approx(math.hypot(0.3, math.log(100 / 90)))
    assert FAST.widened(0.0) is FAST
    close(FAST.stretched(0.3), 100, 90 * math.exp(-0.3), 120 * math.exp(0.3))


def test_a_share_narrows_either_side() -> None:
    close(FAST.narrowed(0.5), 100, 100 * math.sqrt(0.9), 100 * math.sqrt(1.2))
    assert FAST.narrowed(1) is FAST


def test_shifts_add_in_quadrature_down_to_a_floor() -> None:
    close(from_shifts(10.0, below=[-3, -4], above=[6, 8]), 10, 5, 20)
    assert from_shifts(10.0, below=[30], above=[], least=1.0).low == 1


def test_of_two_things_side_by_side_the_longer_counts_bound_by_bound() -> None:
    close(longer(FAST, Interval(median=95.0, low=94.0, high=96.0)), 100, 94, 120)


def test_one_run_is_its_own_answer() -> None:
    close(equally_likely([FAST]), 100, 90, 120)


def test_the_median_is_the_geometric_mean_within_the_widest_bounds() -> None:
    close(equally_likely([FAST, SLOW]), 200, 90, 440)
    assert equally_likely([FAST, SLOW], 0.3).high == pytest.approx(SLOW.widened(0.3).high)
