"""The kinds of time model that compete for an operator, and how each is fitted.

Hybrid models learn the ratio of the time to a roofline fit, so their correction stays bounded outside the samples; trees on
raw time are the common practice that they have to beat.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from regressors.features.arrays import Floats
from regressors.models.roofline_fit import fit_roofline
from regressors.models.smooth import Smooth, fit_smooth
from regressors.models.time_model import TimeModel, correction_inputs
from regressors.models.trees import FlatTrees, from_forest, from_xgboost

ROOFLINE, BLEND = "roofline", "hybrid-blend"
SMOOTH, EXTRA_TREES, BOOSTED = "hybrid-smooth", "hybrid-extratrees", "hybrid-xgboost"
FOREST, RAW_BOOSTED = "forest", "xgboost"
RAW_TIME = (FOREST, RAW_BOOSTED)
CANDIDATES = (ROOFLINE, BLEND)
"""The kinds that training chooses from. A single kind of correction is not among them: the mean of all beats the one that a
few held-out rows would choose."""
BLENDED = (SMOOTH, EXTRA_TREES, BOOSTED)
"""The corrections that are averaged, since they err in different places."""
BLENDED_LARGE = (EXTRA_TREES, BOOSTED)
SMOOTH_ROWS = 2000
"""Rows from which on the smooth correction is not fitted: it has too few centres to add anything."""
RANDOM_STATE = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Capacity:
    """Size limits of the tree ensembles; more rows support larger trees."""

    trees: int
    leaves: int
    boosting_rounds: int
    boosting: dict[str, float | int | str]


FEW = Capacity(trees=60, leaves=512, boosting_rounds=120, boosting={"max_depth": 4, "eta": 0.1, "tree_method": "exact"})
SOME = Capacity(
    trees=60, leaves=512, boosting_rounds=120, boosting={"max_depth": 6, "eta": 0.1, "tree_method": "exact"}
)
STOCHASTIC: dict[str, float | int | str] = {
    "max_depth": 0,
    "grow_policy": "lossguide",
    "subsample": 0.8,
    "colsample_bytree": 0.7,
    "tree_method": "hist",
}
MODERATE = Capacity(
    trees=30, leaves=8192, boosting_rounds=120, boosting={"max_leaves": 48, "eta": 0.12, "max_bin": 64, **STOCHASTIC}
)
LARGEST = Capacity(trees=30, leaves=8192, boosting_rounds=300, boosting={"max_leaves": 256, "eta": 0.08, **STOCHASTIC})
CAPACITIES = ((200, FEW), (1_000, SOME), (5_000, MODERATE))
"""Upper limit of rows for each capacity; LARGEST beyond the last."""


def capacity(rows: int) -> Capacity:
    return next((size for limit, size in CAPACITIES if rows < limit), LARGEST)


def fit_candidate(candidate: str, terms: Floats, features: Floats, time_us: Floats) -> TimeModel:
    """Fit one kind to terms [rows, terms], features [rows, features] and times [rows]."""
    return fit_candidates([candidate], terms, features, time_us)[candidate]


def fit_candidates(candidates: Sequence[str], terms: Floats, features: Floats, time_us: Floats) -> dict[str, TimeModel]:
    """Fit several kinds; a component that several of them use is fitted once."""
    base = fit_roofline(terms, time_us)
    inputs = correction_inputs(base, terms, features)
    ratio = np.log(time_us / base.time_us(terms))
    blended = BLENDED if len(ratio) < SMOOTH_ROWS else BLENDED_LARGE
    fits: dict[str, Callable[[], FlatTrees | Smooth]] = {
        SMOOTH: lambda: _smooth(inputs, ratio),
        EXTRA_TREES: lambda: _extra_trees(inputs, ratio),
        BOOSTED: lambda: _boosted(inputs, ratio),
        FOREST: lambda: _forest(features, time_us),
        RAW_BOOSTED: lambda: _boosted(features, time_us),
    }
    components = {name: {ROOFLINE: (), BLEND: blended}.get(name, (name,)) for name in candidates}
    learnt = {name: fits[name]() for name in {name for names in components.values() for name in names}}
    return {
        name: TimeModel(candidate=name, base=base, learnt=tuple(learnt[component] for component in names))
        for name, names in components.items()
    }


def _smooth(inputs: Floats, target: Floats) -> Smooth:
    """Fit to the mean of equal rows: with repeats of a shape left in, leave-one-out errors would test nothing."""
    rows, which = np.unique(inputs, axis=0, return_inverse=True)
    which = which.reshape(-1)
    return fit_smooth(rows, np.bincount(which, weights=target) / np.bincount(which))


def _forest(inputs: Floats, target: Floats) -> FlatTrees:
    from sklearn.ensemble import RandomForestRegressor

    size = capacity(len(inputs))
    forest = RandomForestRegressor(
        n_estimators=size.trees, max_leaf_nodes=size.leaves, random_state=RANDOM_STATE, n_jobs=1
    )
    return from_forest(forest.fit(inputs, target))


def _extra_trees(inputs: Floats, target: Floats) -> FlatTrees:
    from sklearn.ensemble import ExtraTreesRegressor

    size = capacity(len(inputs))
    forest = ExtraTreesRegressor(
        n_estimators=size.trees, max_leaf_nodes=size.leaves, random_state=RANDOM_STATE, n_jobs=1
    )
    return from_forest(forest.fit(inputs, target))


def _boosted(inputs: Floats, target: Floats) -> FlatTrees:
    import xgboost

    size = capacity(len(inputs))
    common = {"min_child_weight": 2, "base_score": float(target.mean()), "nthread": 1, "seed": RANDOM_STATE}
    data = xgboost.DMatrix(inputs, label=target, nthread=1)
    return from_xgboost(xgboost.train({**size.boosting, **common}, data, num_boost_round=size.boosting_rounds))
