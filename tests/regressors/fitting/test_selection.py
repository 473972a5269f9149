"""The choice among kinds of model: made on held-out rows, and scored on others."""

from __future__ import annotations

import numpy as np
import pytest

from regressors.accuracy.score import cross_validate, rivals
from regressors.dataset.splits import by_shape, largest
from regressors.dataset.training_data import TrainingData
from regressors.features.arrays import Floats
from regressors.fitting.fit import fit_operator
from regressors.fitting.selection import (
    ALONE,
    FOREST_ALONE,
    SHAPES_FOR_TREES,
    XGBOOST_ALONE,
    HeldOut,
    choose,
    competing,
)
from regressors.models.candidates import BLEND, CANDIDATES, FOREST, ROOFLINE, TREES, XGBOOST
from sampling.call import Call
from tests.regressors.synthetic_operators import Product, random_products, roofline_time, sampled


def held_out(within: float, beyond: float, rows: int = 4) -> HeldOut:
    return HeldOut(unseen=np.full(rows, within), beyond=np.full(rows, beyond))


EVERY = np.ones(4, dtype=np.bool_)


@pytest.mark.parametrize(
    ("forest", "chosen"),
    [
        ((0.05, 0.1), FOREST),
        # better beyond the samples only, where the roofline answers for it
        ((0.12, 0.01), BLEND),
        # better within them, and what it gains is lost beyond
        ((0.05, 0.2), BLEND),
    ],
)
def test_trees_win_where_they_err_less_within_the_samples_and_in_all(forest: tuple[float, float], chosen: str) -> None:
    errors = {ROOFLINE: held_out(0.3, 0.1), BLEND: held_out(0.1, 0.1), FOREST: held_out(*forest)}
    assert choose(errors, EVERY) == chosen


def test_trees_alone_are_never_chosen() -> None:
    assert choose({ROOFLINE: held_out(0.3, 0.3), FOREST_ALONE: held_out(0.0, 0.0)}, EVERY) == ROOFLINE


def test_trees_compete_from_twenty_shapes_on_unless_they_are_asked_for() -> None:
    few, enough = (sampled(random_products(count, seed=0)) for count in (SHAPES_FOR_TREES - 1, SHAPES_FOR_TREES))
    assert not set(competing(few)) & set(TREES)
    assert set(competing(enough)) == set(CANDIDATES)
    assert competing(few, (XGBOOST,)) == (XGBOOST,)
    assert competing(sampled(random_products(5, seed=0)), (XGBOOST,)) == (ROOFLINE,)


def steps(call: Call) -> float:
    """A time that no resource explains: three kernels, each of one speed whatever the size."""
    return float([10.0, 100.0, 1000.0][int(np.searchsorted([300, 900], call.fields()["m"]))])


def staircase() -> TrainingData:
    grid = [Product(m=int(m), n=n, k=64) for m in np.geomspace(64, 4096, 20) for n in (64, 128, 256)]
    return sampled(grid, truth=steps, noise=0.01)


def test_trees_are_chosen_where_they_are_right() -> None:
    fitted, errors = fit_operator(staircase())
    assert fitted.model.candidate in TREES
    assert set(errors) == set(CANDIDATES)


def test_a_fold_is_scored_with_the_choice_of_the_others() -> None:
    """In each fold another kind happens to be right; a choice that saw the fold would score nothing but zeros."""
    data = sampled(random_products(40, seed=0))
    folds, top = by_shape(data.shape), largest(data.shape, data.terms)
    errors = {}
    for place, name in enumerate((ROOFLINE, BLEND)):
        unseen: Floats = np.full(len(data), 0.5)
        for fold in folds[place::2]:
            unseen[fold] = 0.0
        errors[name] = HeldOut(unseen=unseen, beyond=np.where(top, unseen, np.nan))
    scores = cross_validate(data, choose(errors, np.ones(len(data), dtype=np.bool_)), errors)
    best = min(float(np.abs(np.expm1(of.unseen)).mean()) for of in errors.values())
    assert scores["shape"].mape > 100 * best


def test_the_report_names_the_rivals_that_are_not_candidates() -> None:
    data = sampled(random_products(30, seed=0), truth=roofline_time, noise=0.02)
    assert [*rivals(data)] == [*ALONE] == [FOREST_ALONE, XGBOOST_ALONE]
    fitted, errors = fit_operator(data, (ROOFLINE,), beside=rivals(data))
    scores = cross_validate(data, fitted.model.candidate, errors)
    for score in scores.values():
        assert score.candidate == ROOFLINE
        assert score.raw_forest is not None
        assert score.raw_xgboost is not None
        assert score.mape < min(score.raw_forest, score.raw_xgboost)
