import numpy as np
import pytest

from regressors.models.smooth import MAX_CENTRES, fit_smooth, spread_subset


def test_learns_a_smooth_curve_from_few_rows() -> None:
    x = np.linspace(0, 6, 25)[:, None]
    fresh = np.linspace(0.5, 5.5, 40)[:, None]
    assert fit_smooth(x, np.sin(x[:, 0])).predict(fresh) == pytest.approx(np.sin(fresh[:, 0]), abs=0.02)


def test_holds_its_edge_value_far_outside() -> None:
    x = np.linspace(0, 1, 20)[:, None]
    fit = fit_smooth(x, x[:, 0])
    assert fit.predict(np.array([[1e6]])) == pytest.approx(fit.predict(np.array([[1.0]])))
    assert fit.predict(np.array([[1e6]]))[0] == pytest.approx(1.0, abs=0.05)


def test_never_leaves_the_range_of_the_targets() -> None:
    generator = np.random.default_rng(0)
    target = generator.normal(size=30)
    predicted = fit_smooth(generator.normal(size=(30, 3)), target).predict(10 * generator.normal(size=(500, 3)))
    assert target.min() <= predicted.min()
    assert predicted.max() <= target.max()


def test_pure_noise_is_smoothed_away() -> None:
    generator = np.random.default_rng(0)
    rows, target = generator.normal(size=(80, 4)), generator.normal(size=80)
    assert np.std(fit_smooth(rows, target).predict(generator.normal(size=(200, 4)))) < 0.6


def test_constant_inputs_and_a_single_row() -> None:
    assert fit_smooth(np.ones((4, 2)), np.arange(4.0)).predict(np.ones((1, 2))) == pytest.approx([1.5], abs=1e-6)
    assert fit_smooth(np.ones((1, 2)), np.array([0.3])).predict(np.zeros((1, 2))) == pytest.approx([0.3])


def test_a_subset_covers_the_rows_and_repeats_none() -> None:
    rows = np.random.default_rng(0).uniform(size=(1000, 2))
    chosen = spread_subset(rows, MAX_CENTRES)
    assert len(set(chosen.tolist())) == MAX_CENTRES
    gaps = np.linalg.norm(rows[:, None] - rows[chosen][None], axis=2).min(axis=1)
    # a square of 200 discs: a radius of √(2/200) covers it with room to spare
    assert gaps.max() < 0.1
