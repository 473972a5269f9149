"""The kinds of time model that compete for an operator, and how each is fitted.

The blend and its parts learn the ratio of the time to a roofline fit, so their correction stays bounded outside the samples. Trees
on the time itself, tuned, are the common practice: they compete with the roofline in their place outside the samples.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from regressors.features.arrays import Floats
from regressors.models.capacity import boost, capacity
from regressors.models.forests import extra_trees
from regressors.models.smooth import Smooth, fit_smooth
from regressors.models.time_model import TimeModel, correction_inputs, fit_roofline
from regressors.models.trees import FlatTrees, from_forest, from_xgboost
from regressors.models.tuned_trees import BOOSTERS, FORESTS, Settings, fit_tuned

ROOFLINE, BLEND, FOREST, XGBOOST = "roofline", "blend", "random-forest", "xgboost"
SMOOTH, EXTRA_TREES, BOOSTED = "hybrid-smooth", "hybrid-extratrees", "hybrid-xgboost"
TREES = (FOREST, XGBOOST)
CANDIDATES = (ROOFLINE, BLEND, *TREES)
"""The kinds that training chooses from. A single kind of correction is not among them: the mean of all beats the one that a
few held-out rows would choose."""
BLENDED = (SMOOTH, EXTRA_TREES, BOOSTED)
"""The corrections that are averaged, since they err in different places."""
BLENDED_LARGE = (EXTRA_TREES, BOOSTED)
DRAWN: Mapping[str, Sequence[Settings]] = {FOREST: FORESTS, XGBOOST: BOOSTERS}
"""The settings of trees on the time itself that a search chooses from."""
USUAL: Mapping[str, Settings] = {name: drawn[0] for name, drawn in DRAWN.items()}
"""The libraries' own settings, on the logarithm of the time: those of tables too small to search on."""
SettingsOf: TypeAlias = Callable[[str], Settings]
"""Kind of trees on the time itself → its settings."""
SMOOTH_ROWS = 2000
"""Rows from which on the smooth correction is not fitted: it has too few centres to add anything."""


def fit_candidate(
    candidate: str, terms: Floats, features: Floats, time_us: Floats, settings: SettingsOf = USUAL.__getitem__
) -> TimeModel:
    """Fit one kind to terms [rows, terms], features [rows, features] and times [rows]."""
    return fit_candidates([candidate], terms, features, time_us, settings)[candidate]


def fit_candidates(
    candidates: Sequence[str],
    terms: Floats,
    features: Floats,
    time_us: Floats,
    settings: SettingsOf = USUAL.__getitem__,
) -> dict[str, TimeModel]:
    """Fit several kinds, trees on the time itself with these settings; a component that several of them use is fitted once."""
    base = fit_roofline(terms, time_us)
    inputs = correction_inputs(base, terms, features)
    ratio = np.log(time_us / base.time_us(terms))
    blended = BLENDED if len(ratio) < SMOOTH_ROWS else BLENDED_LARGE
    parts = {name: {ROOFLINE: (), BLEND: blended}.get(name, (name,)) for name in candidates if name not in TREES}
    corrections = {
        name: CORRECTIONS[name](inputs, ratio) for name in {part for names in parts.values() for part in names}
    }
    models = {
        name: TimeModel(candidate=name, base=base, learnt=tuple(corrections[part] for part in names))
        for name, names in parts.items()
    }
    for name in candidates:
        if name in TREES:
            tuned = fit_tuned(settings(name), features, time_us)
            models[name] = TimeModel(candidate=name, base=base, learnt=(tuned.trees,), target=tuned.target)
    return models


def _smooth(inputs: Floats, target: Floats) -> Smooth:
    """Fit to the mean of equal rows: with repeats of a shape left in, leave-one-out errors would test nothing."""
    rows, which = np.unique(inputs, axis=0, return_inverse=True)
    which = which.reshape(-1)
    return fit_smooth(rows, np.bincount(which, weights=target) / np.bincount(which))


def _extra_trees(inputs: Floats, target: Floats) -> FlatTrees:
    size = capacity(len(inputs))
    return from_forest(extra_trees(inputs, target, trees=size.trees, max_leaf_nodes=size.leaves))


def _boosted(inputs: Floats, target: Floats) -> FlatTrees:
    return from_xgboost(boost(inputs, target))


CORRECTIONS: Mapping[str, Callable[[Floats, Floats], FlatTrees | Smooth]] = {
    SMOOTH: _smooth,
    EXTRA_TREES: _extra_trees,
    BOOSTED: _boosted,
}
