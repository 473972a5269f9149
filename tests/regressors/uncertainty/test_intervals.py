import math

import numpy as np
import pytest

from regressors.uncertainty.intervals import UNKNOWN_HALF_WIDTH, Intervals, calibrate, half_width


@pytest.mark.parametrize("count", [3, 9, 20, 100])
def test_covers_nine_of_ten_fresh_errors(count: int) -> None:
    generator = np.random.default_rng(0)
    covered = [abs(generator.normal()) <= half_width(generator.normal(size=count)) for _ in range(3000)]
    assert 0.88 <= np.mean(covered) <= 0.97


def test_the_quantile_is_that_of_the_finite_sample() -> None:
    errors = np.arange(1, 20) / 100
    assert half_width(errors) == pytest.approx(0.18)  # ⌈0.9 · 20⌉ = 18th of 19
    assert half_width(-errors) == half_width(errors)


def test_without_errors_a_factor_of_two() -> None:
    nothing = np.zeros(0)
    assert half_width(nothing) == UNKNOWN_HALF_WIDTH == math.log(2)
    assert calibrate(nothing, nothing, nothing) == Intervals(inside=math.log(2), outside=math.log(2), octaves=1.0)


def test_outside_is_never_narrower_and_grows_with_the_distance() -> None:
    intervals = calibrate(np.full(20, 0.1), np.full(20, 0.05), np.array([2.0]))
    assert intervals.outside == intervals.inside == pytest.approx(0.1)
    half = intervals.half_width(np.array([True, False, False]), np.array([0.0, 1.0, 18.0]))
    assert half == pytest.approx([0.1, 0.1, 0.3])
