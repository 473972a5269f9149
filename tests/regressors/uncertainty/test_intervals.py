import math

import numpy as np
import pytest

from regressors.uncertainty.intervals import UNKNOWN_HALF_WIDTH, Intervals, calibrate, half_width, learn_domain
from tests.regressors.synthetic_operators import random_products, sampled


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


def test_domain_of_samples() -> None:
    data = sampled(random_products(60, seed=0))
    base = data.terms.sum(axis=1)
    domain = learn_domain(data.terms, data.features, base)
    assert domain.contains(data.terms, data.features).all()
    assert (domain.octaves_beyond(base) == 0).all()
    fresh = sampled(random_products(300, seed=1, low=100, high=3000))
    assert domain.contains(fresh.terms, fresh.features).mean() > 0.9
    large = sampled(random_products(50, seed=1, low=8192, high=16384))
    assert not domain.contains(large.terms, large.features).any()
    assert domain.octaves_beyond(base.max(keepdims=True) * 8) == pytest.approx([3.0])
    assert domain.octaves_beyond(base.min(keepdims=True) / 4) == pytest.approx([2.0])


def test_a_hole_among_the_samples_is_outside() -> None:
    x = np.array([0.0, 0.1, 0.2, 0.3, 10.0, 10.1, 10.2, 10.3])
    domain = learn_domain(np.exp2(x)[:, None], x[:, None], np.exp2(x))
    asked = np.array([0.15, 5.0, 10.25])
    assert domain.contains(np.exp2(asked)[:, None], asked[:, None]).tolist() == [True, False, True]


def test_a_feature_that_never_varied_must_stay() -> None:
    features = np.column_stack([np.linspace(0, 1, 10), np.full(10, 3.0)])
    domain = learn_domain(np.ones((10, 1)), features, np.ones(10))
    asked = np.array([[0.5, 3.0], [0.5, 3.4], [0.5, 4.0]])
    assert domain.contains(np.ones((3, 1)), asked).tolist() == [True, True, False]
