"""Trees on the time itself: their settings are searched inside the rows they are given."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pytest
import xgboost
from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor

from regressors.features.arrays import Floats
from regressors.models.target import Target, decoded
from regressors.models.trees import from_forest, from_xgboost
from regressors.models.tuned_trees import BOOSTING_GRID, FOREST_GRID, TRIES, TunedTrees, draws, fit_boosted, fit_forest


def problem(rows: int = 300, columns: int = 5) -> tuple[np.ndarray, np.ndarray]:
    inputs = np.random.default_rng(0).normal(size=(rows, columns)).round(2)
    return inputs, np.exp(inputs[:, 0]) + inputs[:, 1] * inputs[:, 2]


@pytest.mark.parametrize("forest", [RandomForestRegressor, ExtraTreesRegressor])
def test_forests_predict_as_scikit_learn(forest: type) -> None:
    inputs, target = problem()
    fitted = forest(n_estimators=20, random_state=0).fit(inputs, target)
    fresh = np.random.default_rng(1).normal(size=(500, 5))
    assert from_forest(fitted).predict(fresh) == pytest.approx(fitted.predict(fresh), rel=1e-5, abs=1e-5)
    assert from_forest(fitted).predict(inputs) == pytest.approx(fitted.predict(inputs), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("method", ["exact", "hist"])
def test_boosters_predict_as_xgboost(method: str) -> None:
    inputs, target = problem()
    settings = {"max_depth": 5, "tree_method": method, "nthread": 1, "base_score": 0.7}
    booster = xgboost.train(settings, xgboost.DMatrix(inputs, label=target), num_boost_round=40)
    fresh = np.concatenate([inputs, np.random.default_rng(1).normal(size=(500, 5))])
    expected = booster.predict(xgboost.DMatrix(fresh))
    assert from_xgboost(booster).predict(fresh) == pytest.approx(expected, rel=1e-5, abs=1e-5)


def test_a_row_on_an_xgboost_split_goes_right() -> None:
    inputs = np.array([[0.0], [1.0]])
    booster = xgboost.train(
        {"max_depth": 1, "min_child_weight": 0, "eta": 1.0, "lambda": 0.0, "base_score": 0.0, "tree_method": "exact"},
        xgboost.DMatrix(inputs, label=[10.0, 20.0]),
        num_boost_round=1,
    )
    assert from_xgboost(booster).predict(np.array([[0.49], [0.5], [0.51]])).tolist() == [10.0, 20.0, 20.0]


def test_a_forest_that_never_splits_is_its_mean() -> None:
    forest = RandomForestRegressor(n_estimators=3, bootstrap=False).fit(np.zeros((4, 2)), np.arange(4.0))
    flat = from_forest(forest)
    assert flat.depth == 0
    assert flat.predict(np.ones((2, 2))).tolist() == [1.5, 1.5]


def test_a_row_is_predicted_the_same_alone_and_among_others() -> None:
    inputs, target = problem()
    flat = from_forest(RandomForestRegressor(n_estimators=50, random_state=0).fit(inputs, target))
    assert [flat.predict(inputs[[row]]).item() for row in range(len(inputs))] == flat.predict(inputs).tolist()


Fit: TypeAlias = Callable[[Floats, Floats], TunedTrees]
FITS = [fit_forest, fit_boosted]


def wide_range(rows: int) -> tuple[Floats, Floats]:
    """Times over six decades, growing by a constant factor a step."""
    inputs = np.random.default_rng(0).uniform(0, 20, size=(rows, 2))
    return inputs, np.exp2(inputs[:, 0])


def test_the_drawn_settings_begin_with_the_defaults_and_hold_both_targets() -> None:
    forests, boosted = draws(FOREST_GRID), draws(BOOSTING_GRID)
    assert len(forests) == len(boosted) == TRIES
    assert (forests[0], boosted[0]) == (FOREST_GRID[0], BOOSTING_GRID[0])
    assert {of.target for of in forests} == {of.target for of in boosted} == {Target.TIME, Target.LOG_TIME}


@pytest.mark.parametrize("fit", FITS)
def test_the_search_finds_the_target_that_errs_less(fit: Fit) -> None:
    inputs, time_us = wide_range(60)
    assert fit(inputs, time_us).target == Target.LOG_TIME


@pytest.mark.parametrize("fit", FITS)
def test_repeats_of_a_row_are_one_row(fit: Fit) -> None:
    """Left apart, they would be learnt and tested on at once, and the search would prefer whatever remembers best."""
    inputs, time_us = wide_range(30)
    once = fit(inputs, time_us)
    thrice = fit(np.tile(inputs, (3, 1)), np.tile(time_us, 3))
    logs = [np.log(decoded(of.target, of.trees.predict(inputs))) for of in (once, thrice)]
    assert np.abs(logs[0] - logs[1]).mean() < 0.01


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("rows", [1, 2, 3])
def test_few_rows_give_positive_times(fit: Fit, rows: int) -> None:
    inputs, time_us = wide_range(rows)
    tuned = fit(inputs, time_us)
    assert (decoded(tuned.target, tuned.trees.predict(inputs - 100)) > 0).all()
