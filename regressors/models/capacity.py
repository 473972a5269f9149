"""Size limits of the tree ensembles, by rows, and how XGBoost is run within them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from regressors.features.arrays import Floats

if TYPE_CHECKING:
    import xgboost

RANDOM_STATE = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Capacity:
    """Size limits of the tree ensembles; more rows support larger trees."""

    trees: int
    leaves: int
    boosting_rounds: int
    eta: float
    boosting: Mapping[str, float | int | str]


FEW = Capacity(trees=60, leaves=512, boosting_rounds=120, eta=0.1, boosting={"max_depth": 4, "tree_method": "exact"})
SOME = Capacity(trees=60, leaves=512, boosting_rounds=120, eta=0.1, boosting={"max_depth": 6, "tree_method": "exact"})
STOCHASTIC: Mapping[str, float | int | str] = {
    "max_depth": 0,
    "grow_policy": "lossguide",
    "subsample": 0.8,
    "colsample_bytree": 0.7,
    "tree_method": "hist",
}
MODERATE = Capacity(
    trees=30, leaves=8192, boosting_rounds=120, eta=0.12, boosting={"max_leaves": 48, "max_bin": 64, **STOCHASTIC}
)
LARGEST = Capacity(trees=30, leaves=8192, boosting_rounds=300, eta=0.08, boosting={"max_leaves": 256, **STOCHASTIC})
CAPACITIES = ((200, FEW), (1_000, SOME), (5_000, MODERATE))
"""Upper limit of rows for each capacity; LARGEST beyond the last."""


def capacity(rows: int) -> Capacity:
    return next((size for limit, size in CAPACITIES if rows < limit), LARGEST)


MOST_ETA = 0.5
"""Largest step of boosting in few rounds; beyond, it fits another model."""


def steps_of_boosting(rows: int, eta: float, share: float = 1.0) -> tuple[float, int]:
    """The step and the rounds of boosting on so many rows by settings with the step `eta`.

    A larger step takes as many fewer rounds; a `share` of the rounds takes as much larger steps, but none above MOST_ETA.
    """
    size = capacity(rows)
    taken = max(eta, min(MOST_ETA, eta / share))
    return taken, round(size.boosting_rounds * size.eta / taken)


def matrix(inputs: Floats, target: Floats | None = None) -> xgboost.DMatrix:
    import xgboost

    return xgboost.DMatrix(inputs, label=target, nthread=1)


@cache
def _booster_kind() -> type[xgboost.Booster]:
    """XGBoost's booster, which copies the names of features from its matrix in every round, without that: matrices here have none, and on
    few rows it takes a fifth of the time. A release that copies them in another way is as it ships."""
    import xgboost

    class Nameless(xgboost.Booster):
        def _assign_dmatrix_features(self, data: xgboost.DMatrix) -> None: ...

    return Nameless


def boost(
    inputs: Floats,
    target: Floats,
    given: Mapping[str, float | int] | None = None,
    *,
    share: float = 1.0,
    data: xgboost.DMatrix | None = None,
) -> xgboost.Booster:
    """XGBoost fitted to inputs [rows, features] and a target [rows], with the `given` settings in place of the capacity's and a `share`
    of its rounds; `data` is their `matrix`, where it is there already."""
    size = capacity(len(inputs))
    settings: dict[str, Any] = {**size.boosting, "eta": size.eta, "min_child_weight": 2, "nthread": 1} | dict(
        given or {}
    )
    settings["eta"], rounds = steps_of_boosting(len(inputs), settings["eta"], share)
    settings |= {"base_score": float(target.mean()), "seed": RANDOM_STATE}
    data = data or matrix(inputs, target)
    # what xgboost.train does, which takes a third longer on few rows for the callbacks that it asks
    booster = _booster_kind()(settings, [data])
    for iteration in range(rounds):
        booster.update(data, iteration)
    return booster
