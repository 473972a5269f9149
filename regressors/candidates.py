"""The kinds of time model that compete for an operator, and how each is fitted.

Ratio targets sit on the roofline base, so what they learn stays bounded outside the samples; trees on raw time are the
common practice that they have to beat.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from regressors.features import Floats
from regressors.model import TimeModel, correction_inputs
from regressors.roofline_fit import fit_roofline
from regressors.smooth import Smooth, fit_smooth
from regressors.trees import FlatTrees, from_forest, from_xgboost

ROOFLINE = "roofline"
RAW_TIME = ("forest", "xgboost")
CANDIDATES = (ROOFLINE, "hybrid-smooth", "hybrid-extratrees", "hybrid-xgboost", *RAW_TIME)
"""Simplest first: of two that score alike, the first wins."""

TREES = 60
BOOSTING_ROUNDS = 120
LEAVES = 512
"""The most a forest's tree may have, so that an operator's model stays under a megabyte or two."""
SEED = 0


def fit_candidate(candidate: str, terms: Floats, features: Floats, time_us: Floats) -> TimeModel:
    """Fit one of CANDIDATES to terms [rows, terms], features [rows, features] and times [rows]."""
    base = fit_roofline(terms, time_us)
    if candidate == ROOFLINE:
        return TimeModel(candidate=candidate, base=base, learnt=None)
    if candidate == "forest":
        return TimeModel(candidate=candidate, base=base, learnt=_forest(features, time_us))
    if candidate == "xgboost":
        return TimeModel(candidate=candidate, base=base, learnt=_boosted(features, time_us))
    inputs = correction_inputs(base, terms, features)
    target = np.log(time_us / base.time_us(terms))
    fits: dict[str, Callable[[Floats, Floats], FlatTrees | Smooth]] = {
        "hybrid-smooth": _smooth,
        "hybrid-extratrees": _extra_trees,
        "hybrid-xgboost": _boosted,
    }
    return TimeModel(candidate=candidate, base=base, learnt=fits[candidate](inputs, target))


def _smooth(inputs: Floats, target: Floats) -> Smooth:
    """On the mean of equal rows: repeats of a shape would make leaving one of them out no test."""
    rows, which = np.unique(inputs, axis=0, return_inverse=True)
    which = which.reshape(-1)
    return fit_smooth(rows, np.bincount(which, weights=target) / np.bincount(which))


def _forest(inputs: Floats, target: Floats) -> FlatTrees:
    from sklearn.ensemble import RandomForestRegressor

    forest = RandomForestRegressor(n_estimators=TREES, max_leaf_nodes=LEAVES, random_state=SEED, n_jobs=1)
    return from_forest(forest.fit(inputs, target))


def _extra_trees(inputs: Floats, target: Floats) -> FlatTrees:
    from sklearn.ensemble import ExtraTreesRegressor

    forest = ExtraTreesRegressor(n_estimators=TREES, max_leaf_nodes=LEAVES, random_state=SEED, n_jobs=1)
    return from_forest(forest.fit(inputs, target))


def _boosted(inputs: Floats, target: Floats) -> FlatTrees:
    import xgboost

    settings = {
        "max_depth": 4 if len(inputs) < 200 else 6,
        "eta": 0.1,
        "min_child_weight": 2,
        "tree_method": "exact" if len(inputs) < 1000 else "hist",
        "base_score": float(target.mean()),
        "nthread": 1,
        "seed": SEED,
    }
    data = xgboost.DMatrix(inputs, label=target, nthread=1)
    return from_xgboost(xgboost.train(settings, data, num_boost_round=BOOSTING_ROUNDS))
