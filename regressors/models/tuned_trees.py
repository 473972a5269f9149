"""Random forests and XGBoost on the time itself, with searched settings: the common practice, as rivals and as candidates.

`regressors.fitting.settings_search` chooses among the settings drawn here, on rows that the choice is not scored on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from regressors.features.arrays import Floats
from regressors.models.capacity import RANDOM_STATE, boost, capacity, matrix, steps_of_boosting
from regressors.models.forests import random_forest
from regressors.models.time_model import Target, decoded, encoded
from regressors.models.trees import FlatTrees, from_forest, from_xgboost

if TYPE_CHECKING:
    import xgboost


@dataclass(frozen=True, kw_only=True, slots=True)
class ForestSettings:
    """Settings of a random forest, named as scikit-learn names them: those that matter most (Probst, Wright and Boulesteix, WIREs 9,
    e1301, 2019), and the target."""

    target: Target
    max_features: float
    min_samples_leaf: int
    max_samples: float


@dataclass(frozen=True, kw_only=True, slots=True)
class BoostingSettings:
    """Settings of XGBoost by its own names: those that matter most (Probst, Boulesteix and Bischl, JMLR 20:53, 2019), and the target.

    Rounds shrink as the step `eta` grows.
    """

    target: Target
    eta: float
    max_depth: int
    min_child_weight: int
    subsample: float
    colsample_bytree: float
    reg_lambda: float


Settings: TypeAlias = ForestSettings | BoostingSettings

TARGETS = (Target.LOG_TIME, Target.TIME)
FOREST_SPACE: Mapping[str, Sequence[float]] = {
    "max_features": (1.0, 0.7, 0.5, 1 / 3),
    "min_samples_leaf": (1, 2, 3, 5),
    "max_samples": (1.0, 0.8, 0.6),
}
BOOSTING_SPACE: Mapping[str, Sequence[float]] = {
    "eta": (0.3, 0.2, 0.1, 0.05),
    "max_depth": (6, 2, 3, 4, 10),
    "min_child_weight": (1, 2, 5),
    "subsample": (1.0, 0.8, 0.6),
    "colsample_bytree": (1.0, 0.7, 0.5),
    "reg_lambda": (1.0, 0.1, 10.0),
}
"""The libraries' own settings first."""
DRAWN = 18
"""Settings drawn from a space at random (Bergstra and Bengio, JMLR 13, 2012), each judged on both targets."""


def draws(kind: type[ForestSettings] | type[BoostingSettings], space: Mapping[str, Sequence[Any]]) -> list[Settings]:
    """The first settings of the space and DRAWN - 1 others, with either target; the same in every fit."""
    every = [*product(*space.values())]
    others = 1 + np.random.default_rng(RANDOM_STATE).permutation(len(every) - 1)
    drawn = [every[int(place)] for place in (0, *others[: DRAWN - 1])]
    return [kind(target=target, **dict(zip(space, values, strict=True))) for values in drawn for target in TARGETS]


FORESTS = draws(ForestSettings, FOREST_SPACE)
BOOSTERS = draws(BoostingSettings, BOOSTING_SPACE)


def in_words(settings: Settings) -> str:
    """`log-time, max_features 0.33, …`: the target and each setting."""
    named = (f"{field.name} {getattr(settings, field.name):.2g}" for field in fields(settings)[1:])
    return ", ".join([settings.target, *named])


@dataclass(frozen=True, kw_only=True, slots=True)
class TunedTrees:
    """Trees that predict what `target` says."""

    trees: FlatTrees
    target: Target


def fit_tuned(settings: Settings, inputs: Floats, time_us: Floats) -> TunedTrees:
    """The ensemble of these settings fitted to inputs [rows, features] and times [rows]; equal rows count as one."""
    rows, times_us, _ = merged(inputs, time_us)
    target = encoded(settings.target, times_us)
    trees = (
        from_forest(_grown(settings, 1.0, rows, target))
        if isinstance(settings, ForestSettings)
        else from_xgboost(boost(rows, target, _given(settings)))
    )
    return TunedTrees(trees=trees, target=settings.target)


def merged(inputs: Floats, time_us: Floats) -> tuple[Floats, Floats, NDArray[np.intp]]:
    """Equal rows as one, with the geometric mean of their times, and the place of each row among them: repeats of a shape would be
    learnt and tested on at once."""
    rows, which = np.unique(inputs, axis=0, return_inverse=True)
    which = which.reshape(-1)
    return rows, np.exp(np.bincount(which, weights=np.log(time_us)) / np.bincount(which)), which


class Fold:
    """Rows that ensembles of many settings are fitted to, and rows that they are judged on, with what they share."""

    def __init__(self, inputs: Floats, time_us: Floats, unseen: Floats) -> None:
        self.inputs, self.unseen = inputs, unseen
        self.target = {target: encoded(target, time_us) for target in TARGETS}

    @cached_property
    def matrices(self) -> Mapping[Target, xgboost.DMatrix]:
        """XGBoost's matrix for each target, whose columns it sorts once."""
        return {target: matrix(self.inputs, encoded_us) for target, encoded_us in self.target.items()}

    @cached_property
    def unseen_matrix(self) -> xgboost.DMatrix:
        return matrix(self.unseen)


def judged_us(settings: Settings, share: float, fold: Fold) -> Floats:
    """Times [unseen rows] by an ensemble of a `share` of the usual trees, which is quick to fit and ranks settings alike."""
    fitted = (
        _few_trees(settings, share, fold)
        if isinstance(settings, ForestSettings)
        else _few_rounds(settings, share, fold)
    )
    return decoded(settings.target, fitted)


def effort(settings: Settings, share: float, rows: int) -> tuple[float, ...]:
    """The effort that a `share` of the usual trees is on so many rows: of equal settings, rows and effort comes the same ensemble."""
    if isinstance(settings, BoostingSettings):
        return steps_of_boosting(rows, settings.eta, share)
    return (_trees(share, rows),)


def _given(settings: BoostingSettings) -> dict[str, Any]:
    return {name: value for name, value in asdict(settings).items() if name != "target"}


def _drawn_rows(settings: ForestSettings, rows: int) -> int:
    return max(1, round(settings.max_samples * rows))


def _trees(share: float, rows: int) -> int:
    return max(1, round(share * capacity(rows).trees))


def _grown(settings: ForestSettings, share: float, inputs: Floats, target: Floats) -> list[Any]:
    return random_forest(
        inputs,
        target,
        trees=_trees(share, len(inputs)),
        drawn_rows=_drawn_rows(settings, len(inputs)),
        max_leaf_nodes=capacity(len(inputs)).leaves,
        max_features=settings.max_features,
        min_samples_leaf=settings.min_samples_leaf,
    )


def _few_trees(settings: ForestSettings, share: float, fold: Fold) -> Floats:
    wanted = fold.unseen.astype(np.float32)
    grown = _grown(settings, share, fold.inputs, fold.target[settings.target])
    return np.asarray(np.mean([tree.predict(wanted).reshape(-1) for tree in grown], axis=0))


def _few_rounds(settings: BoostingSettings, share: float, fold: Fold) -> Floats:
    target = settings.target
    booster = boost(fold.inputs, fold.target[target], _given(settings), share=share, data=fold.matrices[target])
    predicted: Floats = booster.predict(fold.unseen_matrix).astype(np.float64)
    return predicted
