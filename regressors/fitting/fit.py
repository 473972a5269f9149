"""One operator from its samples to a fitted model with intervals."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regressors.bank.fitted_operator import FittedOperator
from regressors.dataset.splits import by_shape, largest
from regressors.dataset.training_data import TrainingData
from regressors.features.arrays import Floats, Mask
from regressors.fitting.settings_search import SettingsSearch
from regressors.models.candidates import (
    BLEND,
    BOOSTED,
    CANDIDATES,
    FOREST,
    ROOFLINE,
    TREES,
    XGBOOST,
    SettingsOf,
    fit_candidate,
    fit_candidates,
)
from regressors.models.domain import Domain, learn_domain
from regressors.models.time_model import Roofline
from regressors.uncertainty.intervals import Intervals, calibrate, is_new, learn_novelty
from regressors.uncertainty.sampled_times import tabulate

# The choice of time model for an operator: least error on unseen shapes plus error on the largest shapes.

FOREST_ALONE, XGBOOST_ALONE = "random-forest-alone", "xgboost-alone"
ALONE: Mapping[str, str] = {FOREST_ALONE: FOREST, XGBOOST_ALONE: XGBOOST}
"""The common practice: the candidate's trees wherever they are asked, without the roofline. Compared with, never chosen."""
MIN_SHAPES_TO_LEARN = 6
"""One per fold and one more. With fewer shapes, held-out errors are too uncertain to choose by, and the roofline is used."""
MARGIN = 0.05
"""Relative margin by which the roofline alone must be better: a smaller difference depends on the few largest rows."""
SHAPES_FOR_TREES = 20
"""Distinct shapes from which on trees compete, four a fold. With fewer the choice follows chance: on the shipped rows it then erred
11.1 % on unseen shapes that it had not seen either, against 10.9 % without trees (docs/log.md)."""
MOST_ROWS_OF_TREES = 3000
"""Rows from which on trees on the time itself are candidates only where they are asked for: on none of 28 published tables that
large did they err less than the blend (benchmarks/accuracy.md), and their search takes longer than all else."""
FEWEST_RACED, BEYOND_CHANCE = 30, 3.0
"""Shapes held out from which on trees can lose before all folds are held out, and by how many standard errors of the difference."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldOut:
    """log(prediction / time) of one kind on rows it was not fitted to, nan where it was not tried.

    `unseen` [rows]: each row predicted from other shapes; `beyond` [rows]: the largest shapes predicted from the others.
    """

    unseen: Floats
    beyond: Floats

    def score(self, rows: Mask) -> float:
        """Mean absolute log error on unseen shapes plus that on the largest, which penalises models that saturate."""
        return _mean(self.unseen[rows]) + _mean(self.beyond[rows])

    def score_within(self, rows: Mask) -> float:
        """Mean absolute log error on unseen shapes."""
        return _mean(self.unseen[rows])


def _mean(errors: Floats) -> float:
    known = tried(errors)
    return float(np.abs(known).mean()) if len(known) else 0.0


def tried(errors: Floats) -> Floats:
    """The errors that are not nan."""
    return errors[~np.isnan(errors)]


def competing(data: TrainingData, wanted: Sequence[str] = CANDIDATES) -> Sequence[str]:
    """The kinds among those wanted that compete for an operator; the roofline if there are too few shapes to choose by."""
    if data.shapes < MIN_SHAPES_TO_LEARN:
        return (ROOFLINE,)
    enough = data.shapes >= SHAPES_FOR_TREES and len(data) < MOST_ROWS_OF_TREES
    if len(wanted) > 1 and not enough:
        return [name for name in wanted if name not in TREES]
    return wanted


def compare(data: TrainingData, kinds: Sequence[str], search: SettingsSearch | None = None) -> dict[str, HeldOut]:
    """Held-out errors of every kind, ALONE ones too; without trees that the first folds show to be no match for the others, unless
    they are compared alone as well."""
    search = search or SettingsSearch(data)
    unseen, beyond = ({name: np.full(len(data), np.nan) for name in kinds} for _ in range(2))
    top = largest(data.shape, data.terms)
    folds = [*((fold, unseen) for fold in by_shape(data.shape)), *([(top, beyond)] if top.any() else [])]

    def hold_out(fold: Mask, errors: Mapping[str, Floats], names: Sequence[str]) -> None:
        for name, of_fold in held_out_errors(names, data, ~fold, fold, search.settings_for(~fold)).items():
            errors[name][fold] = of_fold

    def found(names: Sequence[str]) -> dict[str, HeldOut]:
        return {name: HeldOut(unseen=unseen[name], beyond=beyond[name]) for name in names}

    raced = [] if ALONE.keys() & set(kinds) else [name for name in kinds if name in TREES]
    others = [name for name in kinds if name not in raced]
    for fold, errors in folds if others else ():
        hold_out(fold, errors, others)
    best = choose(found(others), np.ones(len(data), dtype=np.bool_)) if others else None
    for fold, errors in folds:
        if raced:
            hold_out(fold, errors, raced)
        raced = [name for name in raced if best is None or not _beaten(data.shape, unseen[name], unseen[best])]
    return found([*others, *raced])


def _beaten(shape: NDArray[np.uint64], errors: Floats, best: Floats) -> bool:
    """Whether trees err more on unseen shapes so far than the best of the others, beyond chance: they will not be chosen (a race: Maron
    and Moore, Artificial Intelligence Review 11, 1997). Rows of one shape err alike, so that chance is between shapes: the standard
    error of a mean of clusters (Liang and Zeger, Biometrika 73, 1986)."""
    rows = ~np.isnan(errors)
    more = np.abs(errors[rows]) - np.abs(best[rows])
    _, which = np.unique(shape[rows], return_inverse=True)
    if len(more) == 0 or which.max() + 1 < FEWEST_RACED:
        return False
    of_shapes = np.bincount(which.reshape(-1), weights=more - more.mean())
    return float(more.mean()) > BEYOND_CHANCE * math.sqrt(float((of_shapes**2).sum())) / len(more)


def choose(errors: Mapping[str, HeldOut], rows: Mask) -> str:
    """The candidate with the least score on the rows, but the blend unless the roofline alone is better by MARGIN.

    Trees answer within the samples only, so they must also err less there.
    """
    scores = {name: held_out.score(rows) for name, held_out in errors.items() if name in CANDIDATES}
    physical = [name for name in (BLEND, ROOFLINE) if name in scores]
    if not physical:
        return min(scores, key=scores.__getitem__)
    best = physical[0]
    if len(physical) > 1 and scores[ROOFLINE] < (1 - MARGIN) * scores[BLEND]:
        best = ROOFLINE
    for name in (name for name in TREES if name in scores):
        if scores[name] < scores[best] and errors[name].score_within(rows) < errors[best].score_within(rows):
            best = name
    return best


def held_out_errors(
    kinds: Sequence[str], data: TrainingData, fitted: Mask, held_out: Mask, settings: SettingsOf
) -> dict[str, Floats]:
    """log(prediction / time) on the held-out rows, by kind, each fitted to the rows `fitted`, trees with these settings."""
    terms, features = data.terms[fitted], data.features[fitted]
    candidates = list(dict.fromkeys(ALONE.get(kind, kind) for kind in kinds))
    models = fit_candidates(candidates, terms, features, data.time_us[fitted], settings)
    trees = [name for name in kinds if name in TREES]
    within = learn_domain(terms, features, models[trees[0]].base.time_us(terms)) if trees else None

    def predicted_us(kind: str) -> Floats:
        if kind in ALONE:
            return models[ALONE[kind]].trees_us(data.features[held_out])
        return models[kind].time_us(data.terms[held_out], data.features[held_out], within)

    return {kind: np.log(predicted_us(kind) / data.time_us[held_out]) for kind in kinds}


# The fit.


def fit_operator(
    data: TrainingData,
    wanted: Sequence[str] = CANDIDATES,
    *,
    beside: Sequence[str] = (),
    search: SettingsSearch | None = None,
) -> tuple[FittedOperator, dict[str, HeldOut]]:
    """The best of the wanted candidates fitted to all rows, with intervals from its held-out errors; and the errors of all kinds.

    `beside`: kinds that are compared without being candidates; `search`: that of the settings of trees on these rows.
    """
    search = search or SettingsSearch(data)
    errors = compare(data, [*competing(data, wanted), *beside], search)
    candidate = choose(errors, np.ones(len(data), dtype=np.bool_))
    return _fit_candidate(data, candidate, errors[candidate], search), errors


def _fit_candidate(data: TrainingData, candidate: str, held_out: HeldOut, search: SettingsSearch) -> FittedOperator:
    # one kind of correction errs as the mean of all does where values are new, and is fitted in half the time
    kind = BOOSTED if candidate == BLEND else candidate

    def errors_of(fitted: Mask, unseen: Mask) -> Floats:
        return held_out_errors([kind], data, fitted, unseen, search.settings_for(fitted))[kind]

    settings = search.settings_for(np.ones(len(data), dtype=np.bool_))
    model = fit_candidate(candidate, data.terms, data.features, data.time_us, settings)
    novelty = learn_novelty(tuple(data.fields), tuple(data.fields.values()), data.codes, errors_of)
    intervals = _intervals(data, held_out, model.base)
    return FittedOperator(
        key=data.key,
        schema=data.schema,
        model=model,
        intervals=intervals,
        domain=learn_domain(data.terms, data.features, model.base.time_us(data.terms)),
        novelty=novelty,
        donor=data.donor,
        sampled_times=tabulate(data, held_out.unseen, intervals.inside),
    )


def _intervals(data: TrainingData, held_out: HeldOut, base: Roofline) -> Intervals:
    """Calibrate on held-out errors, with rows outside the domain of the remaining rows kept apart."""
    base_us = base.time_us(data.terms)

    def domain_without(rows: Mask) -> Domain:
        return learn_domain(data.terms[~rows], data.features[~rows], base_us[~rows])

    folds, top = by_shape(data.shape), largest(data.shape, data.terms)
    inside, new = np.zeros((2, len(data)), dtype=np.bool_)
    for fold in folds:
        inside[fold] = domain_without(fold).contains(data.terms[fold], data.features[fold])
        new[fold] = is_new(tuple(data.fields), data.codes[~fold], data.codes[fold])
    outside_errors = np.concatenate([tried(held_out.unseen[~inside]), tried(held_out.beyond)])
    octaves = domain_without(top).octaves_beyond(base_us[top]) if top.any() else np.zeros(0)
    return calibrate(tried(held_out.unseen[inside & ~new]), outside_errors, octaves)
