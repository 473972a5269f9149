"""Random forests and XGBoost on the time itself, tuned by search: the common practice, as rivals and as candidates.

Every fit searches its settings by cross-validation inside the rows that it is given, so a held-out row never chooses them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from regressors.features.arrays import Floats
from regressors.models.capacity import RANDOM_STATE, boost, capacity
from regressors.models.target import Target, decoded, encoded
from regressors.models.trees import FlatTrees, from_forest, from_xgboost


@dataclass(frozen=True, kw_only=True, slots=True)
class ForestSettings:
    """A forest's target, the share of the features that a split may look at, and the fewest rows of a leaf: the settings that matter
    most (Probst, Wright and Boulesteix, WIREs 9, e1301, 2019)."""

    target: Target
    max_features: float
    min_samples_leaf: int


@dataclass(frozen=True, kw_only=True, slots=True)
class BoostingSettings:
    """The target of boosting, its step and its depth, which matter most (Probst, Boulesteix and Bischl, JMLR 20:53, 2019); None: that
    of the capacity."""

    target: Target
    eta: float | None
    max_depth: int | None


S = TypeVar("S", ForestSettings, BoostingSettings)

FOREST_GRID = [
    ForestSettings(target=target, max_features=max_features, min_samples_leaf=min_samples_leaf)
    for target, max_features, min_samples_leaf in product((Target.LOG_TIME, Target.TIME), (1.0, 1 / 3), (1, 3))
]
"""scikit-learn's own settings first."""
BOOSTING_GRID = [
    BoostingSettings(target=target, eta=eta, max_depth=max_depth)
    for target, eta, max_depth in product((Target.LOG_TIME, Target.TIME), (0.3, None), (None, 3))
]
"""XGBoost's own step first. Rounds shrink as the step grows."""
TRIES = 4
"""Settings tried: the first of the grid, and others drawn from it at random (Bergstra and Bengio, JMLR 13, 2012)."""
INNER_FOLDS = 3
SEARCH_ROWS = 200
"""Most rows to search on, so that a large table takes about as long as a small one."""
SEARCH_TREES = 8
"""Trees of a forest while searching: enough to rank settings, in a fraction of the time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TunedTrees:
    """Trees that predict what `target` says."""

    trees: FlatTrees
    target: Target


@dataclass(frozen=True, kw_only=True, slots=True)
class _Learner:
    """A fitted ensemble: predictions by its own library, which is quick while searching, and the trees to keep."""

    predict: Callable[[Floats], Floats]
    export: Callable[[], FlatTrees]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Kind(Generic[S]):
    """A kind of ensemble: its grid, and its fit while searching and at last."""

    grid: Sequence[S]
    search: Callable[[S, Floats, Floats], _Learner]
    fit: Callable[[S, Floats, Floats], _Learner]


def fit_forest(inputs: Floats, time_us: Floats) -> TunedTrees:
    """A random forest fitted to inputs [rows, features] and times [rows]."""
    return _tuned(_Kind(grid=FOREST_GRID, search=_grow_few, fit=_grow), inputs, time_us)


def fit_boosted(inputs: Floats, time_us: Floats) -> TunedTrees:
    """XGBoost fitted to inputs [rows, features] and times [rows]."""
    return _tuned(_Kind(grid=BOOSTING_GRID, search=_boost, fit=_boost), inputs, time_us)


def draws(grid: Sequence[S]) -> list[S]:
    """The first settings of the grid and TRIES - 1 others, the same in every fit."""
    others: NDArray[np.int64] = 1 + np.random.default_rng(RANDOM_STATE).permutation(len(grid) - 1)
    return [grid[int(place)] for place in (0, *others[: TRIES - 1])]


def _tuned(kind: _Kind[S], inputs: Floats, time_us: Floats) -> TunedTrees:
    rows, times_us = _merged(inputs, time_us)
    settings = _best(kind, rows, times_us)
    return TunedTrees(
        trees=kind.fit(settings, rows, encoded(settings.target, times_us)).export(), target=settings.target
    )


def _merged(inputs: Floats, time_us: Floats) -> tuple[Floats, Floats]:
    """Equal rows as one, with the geometric mean of their times: repeats of a shape would be learnt and tested on at once."""
    rows, which = np.unique(inputs, axis=0, return_inverse=True)
    which = which.reshape(-1)
    return rows, np.exp(np.bincount(which, weights=np.log(time_us)) / np.bincount(which))


def _best(kind: _Kind[S], inputs: Floats, time_us: Floats) -> S:
    """The drawn settings with the least mean absolute log error over INNER_FOLDS folds of at most SEARCH_ROWS rows."""
    tried = draws(kind.grid)
    order = np.random.default_rng(RANDOM_STATE).permutation(len(inputs))[:SEARCH_ROWS]
    if len(order) < INNER_FOLDS:
        return tried[0]
    fold = np.arange(len(order)) % INNER_FOLDS

    def error_of(settings: S, fitted: NDArray[np.intp], held_out: NDArray[np.intp]) -> float:
        learner = kind.search(settings, inputs[fitted], encoded(settings.target, time_us[fitted]))
        predicted_us = decoded(settings.target, learner.predict(inputs[held_out]))
        return float(np.abs(np.log(predicted_us / time_us[held_out])).sum())

    def error(settings: S) -> float:
        return sum(error_of(settings, order[fold != number], order[fold == number]) for number in range(INNER_FOLDS))

    return min(tried, key=error)


def _grow_few(settings: ForestSettings, inputs: Floats, target: Floats) -> _Learner:
    return _grow(settings, inputs, target, trees=SEARCH_TREES)


def _grow(settings: ForestSettings, inputs: Floats, target: Floats, trees: int | None = None) -> _Learner:
    from sklearn.ensemble import RandomForestRegressor

    size = capacity(len(inputs))
    forest = RandomForestRegressor(
        n_estimators=trees or size.trees,
        max_leaf_nodes=size.leaves,
        max_features=settings.max_features,
        min_samples_leaf=settings.min_samples_leaf,
        random_state=RANDOM_STATE,
        n_jobs=1,
    ).fit(inputs, target)
    return _Learner(predict=forest.predict, export=lambda: from_forest(forest))


def _boost(settings: BoostingSettings, inputs: Floats, target: Floats) -> _Learner:
    import xgboost

    booster = boost(inputs, target, eta=settings.eta, max_depth=settings.max_depth)
    return _Learner(
        predict=lambda rows: booster.predict(xgboost.DMatrix(rows, nthread=1)), export=lambda: from_xgboost(booster)
    )
