"""The kinds of time model that compete for an operator, and how each is fitted.

Ratio targets sit on the roofline base, so what they learn stays bounded outside the samples; trees on raw time are the
common practice that they have to beat.
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
"""What may be used. One kind of correction alone is not among them: the mean of all beats the one that a few held-out
rows would choose."""
BLENDED = (SMOOTH, EXTRA_TREES, BOOSTED)
"""What is averaged: they err in different places."""
BLENDED_OF_MANY = (EXTRA_TREES, BOOSTED)
MANY = 2000
"""Rows from which on the smooth correction, whose centres are few, adds nothing."""
SEED = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Capacity:
    """How large the trees may grow; more rows tell more apart."""

    trees: int
    leaves: int
    rounds: int
    boosting: dict[str, float | int | str]


FEW = Capacity(trees=60, leaves=512, rounds=120, boosting={"max_depth": 4, "eta": 0.1, "tree_method": "exact"})
SOME = Capacity(trees=60, leaves=512, rounds=120, boosting={"max_depth": 6, "eta": 0.1, "tree_method": "exact"})
STOCHASTIC: dict[str, float | int | str] = {
    "max_depth": 0,
    "grow_policy": "lossguide",
    "subsample": 0.8,
    "colsample_bytree": 0.7,
    "tree_method": "hist",
}
MODERATE = Capacity(
    trees=30, leaves=8192, rounds=120, boosting={"max_leaves": 48, "eta": 0.12, "max_bin": 64, **STOCHASTIC}
)
LARGEST = Capacity(trees=30, leaves=8192, rounds=300, boosting={"max_leaves": 256, "eta": 0.08, **STOCHASTIC})
CAPACITIES = ((200, FEW), (1_000, SOME), (5_000, MODERATE))
"""Up to so many rows each; beyond, LARGEST."""


def capacity(rows: int) -> Capacity:
    return next((size for limit, size in CAPACITIES if rows < limit), LARGEST)


def fit_candidate(candidate: str, terms: Floats, features: Floats, time_us: Floats) -> TimeModel:
    """Fit one kind to terms [rows, terms], features [rows, features] and times [rows]."""
    return fit_candidates([candidate], terms, features, time_us)[candidate]


def fit_candidates(candidates: Sequence[str], terms: Floats, features: Floats, time_us: Floats) -> dict[str, TimeModel]:
    """The same for several kinds, which share what they have in common."""
    base = fit_roofline(terms, time_us)
    inputs = correction_inputs(base, terms, features)
    ratio = np.log(time_us / base.time_us(terms))
    blended = BLENDED if len(ratio) < MANY else BLENDED_OF_MANY
    fits: dict[str, Callable[[], FlatTrees | Smooth]] = {
        SMOOTH: lambda: _smooth(inputs, ratio),
        EXTRA_TREES: lambda: _extra_trees(inputs, ratio),
        BOOSTED: lambda: _boosted(inputs, ratio),
        FOREST: lambda: _forest(features, time_us),
        RAW_BOOSTED: lambda: _boosted(features, time_us),
    }
    parts = {name: {ROOFLINE: (), BLEND: blended}.get(name, (name,)) for name in candidates}
    learnt = {part: fits[part]() for part in {part for names in parts.values() for part in names}}
    return {
        name: TimeModel(candidate=name, base=base, learnt=tuple(learnt[part] for part in names))
        for name, names in parts.items()
    }


def _smooth(inputs: Floats, target: Floats) -> Smooth:
    """On the mean of equal rows: repeats of a shape would make leaving one of them out no test."""
    rows, which = np.unique(inputs, axis=0, return_inverse=True)
    which = which.reshape(-1)
    return fit_smooth(rows, np.bincount(which, weights=target) / np.bincount(which))


def _forest(inputs: Floats, target: Floats) -> FlatTrees:
    from sklearn.ensemble import RandomForestRegressor

    size = capacity(len(inputs))
    forest = RandomForestRegressor(n_estimators=size.trees, max_leaf_nodes=size.leaves, random_state=SEED, n_jobs=1)
    return from_forest(forest.fit(inputs, target))


def _extra_trees(inputs: Floats, target: Floats) -> FlatTrees:
    from sklearn.ensemble import ExtraTreesRegressor

    size = capacity(len(inputs))
    forest = ExtraTreesRegressor(n_estimators=size.trees, max_leaf_nodes=size.leaves, random_state=SEED, n_jobs=1)
    return from_forest(forest.fit(inputs, target))


def _boosted(inputs: Floats, target: Floats) -> FlatTrees:
    import xgboost

    size = capacity(len(inputs))
    common = {"min_child_weight": 2, "base_score": float(target.mean()), "nthread": 1, "seed": SEED}
    data = xgboost.DMatrix(inputs, label=target, nthread=1)
    return from_xgboost(xgboost.train({**size.boosting, **common}, data, num_boost_round=size.rounds))
