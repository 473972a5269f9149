"""Trees as flat arrays, and trees on the time itself."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import xgboost
from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor

from regressors.features.arrays import Floats
from regressors.models import forests
from regressors.models.capacity import RANDOM_STATE
from regressors.models.forests import extra_trees, random_forest
from regressors.models.time_model import Target, decoded
from regressors.models.trees import from_forest, from_xgboost
from regressors.models.tuned_trees import BOOSTERS, FORESTS, Fold, Settings, fit_tuned, in_words, judged_us


def problem(rows: int = 300, columns: int = 5) -> tuple[np.ndarray, np.ndarray]:
    inputs = np.random.default_rng(0).normal(size=(rows, columns)).round(2)
    return inputs, np.exp(inputs[:, 0]) + inputs[:, 1] * inputs[:, 2]


def members(forest: Any) -> list[Any]:
    return [member.tree_ for member in forest.estimators_]


@pytest.mark.parametrize("forest", [RandomForestRegressor, ExtraTreesRegressor])
def test_forests_predict_as_scikit_learn(forest: type) -> None:
    inputs, target = problem()
    fitted = forest(n_estimators=20, random_state=0).fit(inputs, target)
    fresh = np.random.default_rng(1).normal(size=(500, 5))
    flat = from_forest(members(fitted))
    assert flat.predict(fresh) == pytest.approx(fitted.predict(fresh), rel=1e-5, abs=1e-5)
    assert flat.predict(inputs) == pytest.approx(fitted.predict(inputs), rel=1e-5, abs=1e-5)


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
    flat = from_forest(members(forest))
    assert flat.depth == 0
    assert flat.predict(np.ones((2, 2))).tolist() == [1.5, 1.5]


def test_a_row_is_predicted_the_same_alone_and_among_others() -> None:
    inputs, target = problem()
    flat = from_forest(members(RandomForestRegressor(n_estimators=50, random_state=0).fit(inputs, target)))
    assert [flat.predict(inputs[[row]]).item() for row in range(len(inputs))] == flat.predict(inputs).tolist()


def same_trees(ours: list[Any], theirs: Any) -> bool:
    return len(ours) == len(theirs.estimators_) and all(
        np.array_equal(getattr(mine, part), getattr(member.tree_, part))
        for mine, member in zip(ours, theirs.estimators_, strict=True)
        for part in ("children_left", "children_right", "feature", "threshold", "value")
    )


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("leaves", [8, 512])
def test_trees_are_those_of_scikit_learns_ensembles(leaves: int, known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Grown one by one, and by a release whose builders are not known."""
    monkeypatch.setattr(forests, "builders_are_known", lambda: known)
    if not known:
        monkeypatch.delattr(forests, "_grown")
    inputs, target = problem(rows=60)
    drawn: dict[str, Any] = {"max_leaf_nodes": leaves, "max_features": 0.5, "min_samples_leaf": 2}
    forest = RandomForestRegressor(n_estimators=7, max_samples=40, random_state=RANDOM_STATE, **drawn)
    extra = ExtraTreesRegressor(n_estimators=7, max_leaf_nodes=leaves, random_state=RANDOM_STATE)
    assert same_trees(random_forest(inputs, target, trees=7, drawn_rows=40, **drawn), forest.fit(inputs, target))
    assert same_trees(extra_trees(inputs, target, trees=7, max_leaf_nodes=leaves), extra.fit(inputs, target))


@pytest.mark.parametrize(
    ("release", "known"), [("1.3.2", False), ("1.4.0", True), ("1.9.1", True), ("1.10.0", False), ("2.0.dev0", False)]
)
def test_builders_of_other_releases_are_not_called(release: str, known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forests, "version", lambda _: release)
    assert forests.builders_are_known.__wrapped__() is known


def wide_range(rows: int) -> tuple[Floats, Floats]:
    """Times over six decades, growing by a constant factor a step."""
    inputs = np.random.default_rng(0).uniform(0, 20, size=(rows, 2))
    return inputs, np.exp2(inputs[:, 0])


@pytest.mark.parametrize("drawn", [FORESTS, BOOSTERS])
def test_the_drawn_settings_begin_with_the_defaults_and_hold_both_targets_of_each(drawn: Sequence[Settings]) -> None:
    assert len({in_words(settings) for settings in drawn}) == len(drawn) >= 30
    for log_time, time in zip(drawn[::2], drawn[1::2], strict=True):
        assert (log_time.target, time.target) == (Target.LOG_TIME, Target.TIME)
        assert replace(log_time, target=Target.TIME) == time
    assert in_words(FORESTS[0]) == "log-time, max_features 1, min_samples_leaf 1, max_samples 1"
    assert in_words(BOOSTERS[0]).startswith("log-time, eta 0.3, max_depth 6, min_child_weight 1, subsample 1,")


@pytest.mark.parametrize("settings", [FORESTS[0], BOOSTERS[0]])
def test_repeats_of_a_row_are_one_row(settings: Settings) -> None:
    """Left apart, they would weigh more than others, and be in a tree and out of it at once."""
    inputs, time_us = wide_range(30)
    once = fit_tuned(settings, inputs, time_us)
    thrice = fit_tuned(settings, np.tile(inputs, (3, 1)), np.tile(time_us, 3))
    logs = [np.log(decoded(of.target, of.trees.predict(inputs))) for of in (once, thrice)]
    assert np.abs(logs[0] - logs[1]).mean() < 0.01


@pytest.mark.parametrize("settings", [*FORESTS[:2], *BOOSTERS[:2]])
@pytest.mark.parametrize("rows", [1, 3])
def test_few_rows_give_positive_times(settings: Settings, rows: int) -> None:
    inputs, time_us = wide_range(rows)
    tuned = fit_tuned(settings, inputs, time_us)
    assert (decoded(tuned.target, tuned.trees.predict(inputs - 100)) > 0).all()


@pytest.mark.parametrize("settings", [FORESTS[0], BOOSTERS[0]])
def test_the_quick_ensemble_of_a_search_errs_much_as_the_whole_one(settings: Settings) -> None:
    inputs, time_us = wide_range(200)
    fitted, asked = slice(150), slice(150, None)
    tuned = fit_tuned(settings, inputs[fitted], time_us[fitted])
    whole = np.log(decoded(tuned.target, tuned.trees.predict(inputs[asked])) / time_us[asked])
    quick = np.log(judged_us(settings, 0.2, Fold(inputs[fitted], time_us[fitted], inputs[asked])) / time_us[asked])
    assert np.abs(quick).mean() == pytest.approx(np.abs(whole).mean(), rel=1.0)


@pytest.mark.parametrize("settings", FORESTS[2:4])
def test_the_quick_forest_follows_its_settings(settings: Settings) -> None:
    """scikit-learn's own forest, of as many trees, errs about the same."""
    inputs, time_us = wide_range(300)
    fitted, asked = slice(200), slice(200, None)
    tuned = fit_tuned(settings, inputs[fitted], time_us[fitted])
    whole = np.log(decoded(tuned.target, tuned.trees.predict(inputs[asked])) / time_us[asked])
    quick = np.log(judged_us(settings, 1.0, Fold(inputs[fitted], time_us[fitted], inputs[asked])) / time_us[asked])
    assert np.abs(quick).mean() == pytest.approx(np.abs(whole).mean(), rel=0.3)
