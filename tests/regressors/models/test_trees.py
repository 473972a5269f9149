import numpy as np
import pytest
import xgboost
from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor

from regressors.models.trees import from_forest, from_xgboost


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
