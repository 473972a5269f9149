"""Trees on the time itself: their settings are searched inside the rows they are given."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pytest

from regressors.features.arrays import Floats
from regressors.models.target import Target, decoded
from regressors.models.tuned_trees import BOOSTING_GRID, FOREST_GRID, TRIES, TunedTrees, draws, fit_boosted, fit_forest

Fit: TypeAlias = Callable[[Floats, Floats], TunedTrees]
FITS = [fit_forest, fit_boosted]


def wide_range(rows: int) -> tuple[Floats, Floats]:
    """Times over six decades, growing by a constant factor a step."""
    inputs = np.random.default_rng(0).uniform(0, 20, size=(rows, 2))
    return inputs, np.exp2(inputs[:, 0])


def test_the_drawn_settings_begin_with_the_defaults_and_hold_both_targets() -> None:
    forests, boosted = draws(FOREST_GRID), draws(BOOSTING_GRID)
    assert len(forests) == len(boosted) == TRIES
    assert (forests[0], boosted[0]) == (FOREST_GRID[0], BOOSTING_GRID[0])
    assert {of.target for of in forests} == {of.target for of in boosted} == {Target.TIME, Target.LOG_TIME}


@pytest.mark.parametrize("fit", FITS)
def test_the_search_finds_the_target_that_errs_less(fit: Fit) -> None:
    inputs, time_us = wide_range(60)
    assert fit(inputs, time_us).target == Target.LOG_TIME


@pytest.mark.parametrize("fit", FITS)
def test_repeats_of_a_row_are_one_row(fit: Fit) -> None:
    """Left apart, they would be learnt and tested on at once, and the search would prefer whatever remembers best."""
    inputs, time_us = wide_range(30)
    once = fit(inputs, time_us)
    thrice = fit(np.tile(inputs, (3, 1)), np.tile(time_us, 3))
    logs = [np.log(decoded(of.target, of.trees.predict(inputs))) for of in (once, thrice)]
    assert np.abs(logs[0] - logs[1]).mean() < 0.01


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("rows", [1, 2, 3])
def test_few_rows_give_positive_times(fit: Fit, rows: int) -> None:
    inputs, time_us = wide_range(rows)
    tuned = fit(inputs, time_us)
    assert (decoded(tuned.target, tuned.trees.predict(inputs - 100)) > 0).all()
