import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regressors.models.roofline_fit import fit_roofline
from tests.regressors.synthetic_operators import random_products, roofline_time, sampled


def test_recovers_the_coefficients_of_a_clean_roofline() -> None:
    data = sampled(random_products(30, seed=0))
    fit = fit_roofline(data.terms, data.time_us)
    assert fit.slowdown == pytest.approx([1.5, 2.5], rel=0.02)
    assert fit.overhead_us == pytest.approx(3.0, rel=0.02)


def test_a_few_bad_rows_do_not_bend_it() -> None:
    data = sampled(random_products(40, seed=0), noise=0.01)
    bad = data.time_us.copy()
    bad[:3] *= 20
    clean, bent = fit_roofline(data.terms, data.time_us), fit_roofline(data.terms, bad)
    assert bent.time_us(data.terms) == pytest.approx(clean.time_us(data.terms), rel=0.05)


def test_noise_alone_leaves_no_bias() -> None:
    data = sampled(random_products(400, seed=1), noise=0.3, seed=2)
    fit = fit_roofline(data.terms, data.time_us)
    truth = np.array([roofline_time(call) for call in random_products(400, seed=1)])
    assert np.mean(np.log(fit.time_us(data.terms) / truth)) == pytest.approx(0.0, abs=0.04)


def test_one_row_gives_every_resource_the_same_slowdown() -> None:
    fit = fit_roofline(np.array([[10.0, 30.0]]), np.array([100.0]))
    assert fit.slowdown == pytest.approx([2.5, 2.5])
    assert fit.overhead_us == pytest.approx(0.0)


def test_terms_that_grow_together_share_the_slowdown() -> None:
    work = np.array([1.0, 10.0, 100.0])
    fit = fit_roofline(np.column_stack([work, 3 * work]), 8 * work)
    assert fit.slowdown == pytest.approx([2.0, 2.0], rel=1e-3)


def test_calls_without_work_cost_the_overhead() -> None:
    fit = fit_roofline(np.zeros((3, 2)), np.array([7.0, 7.0, 7.0]))
    assert fit.time_us(np.zeros((1, 2))) == pytest.approx([7.0])


@settings(max_examples=30)
@given(st.lists(st.tuples(*[st.floats(1, 1e6)] * 3), min_size=1, max_size=8), st.floats(1, 1e3))
def test_never_negative_and_scales_with_the_unit_of_time(rows: list[tuple[float, float, float]], unit: float) -> None:
    table = np.array(rows)
    fit = fit_roofline(table[:, :2], table[:, 2])
    assert (fit.slowdown >= 0).all()
    assert fit.overhead_us >= 0
    assert (fit.time_us(table[:, :2]) > 0).all()
    # a clock that counts in another unit finds the same slowdown times the unit, but for the least time a clock resolves
    other = fit_roofline(table[:, :2], table[:, 2] * unit)
    assert other.time_us(table[:, :2]) == pytest.approx(unit * fit.time_us(table[:, :2]), rel=5e-3, abs=2e-3)
