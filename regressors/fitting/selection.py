"""Which candidate to use for an operator: the one that errs least on unseen shapes and on the largest ones together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from regressors.dataset.splits import by_shape, largest
from regressors.dataset.training_data import TrainingData
from regressors.features.arrays import Floats, Mask
from regressors.models.candidates import BLEND, CANDIDATES, ROOFLINE, fit_candidate, fit_candidates
from regressors.models.time_model import TimeModel

MIN_SHAPES_TO_LEARN = 6
"""A fold each and one over: below, a held-out error says too little to choose by, and the roofline has no rival."""
MARGIN = 0.05
"""By how much the roofline alone must be better: a difference below is the luck of the largest few rows held out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldOut:
    """log(prediction / time) of one candidate on rows it was not fitted on.

    `unseen` [rows] are rows predicted without their shape, nan where none was tried; `beyond` are the largest shapes,
    predicted from the rest.
    """

    unseen: Floats
    beyond: Floats

    @property
    def score(self) -> float:
        """Mean absolute log error on unseen shapes plus the same on the largest: a saturating model pays for the latter."""
        parts = [part for part in (self.unseen[~np.isnan(self.unseen)], self.beyond) if len(part)]
        return float(sum(np.abs(part).mean() for part in parts))


def compare(data: TrainingData, kinds: Sequence[str] = CANDIDATES) -> dict[str, HeldOut]:
    """Held-out errors of every kind; of the roofline alone where the shapes are too few."""
    if data.shapes < MIN_SHAPES_TO_LEARN:
        kinds = (ROOFLINE,)
    unseen = {name: np.full(len(data), np.nan) for name in kinds}
    for fold in by_shape(data.shape):
        for name, errors in held_out_errors(kinds, data, ~fold, fold).items():
            unseen[name][fold] = errors
    top = largest(data.shape, data.terms)
    beyond = held_out_errors(kinds, data, ~top, top) if top.any() else dict.fromkeys(kinds, np.zeros(0))
    return {name: HeldOut(unseen=unseen[name], beyond=beyond[name]) for name in kinds}


def choose(errors: Mapping[str, HeldOut]) -> str:
    """The candidate with the least score; the learnt one also where the roofline alone is less than MARGIN better."""
    if BLEND not in errors:
        return ROOFLINE
    return ROOFLINE if errors[ROOFLINE].score < (1 - MARGIN) * errors[BLEND].score else BLEND


def fit_rows(candidate: str, data: TrainingData, rows: Mask) -> TimeModel:
    return fit_candidate(candidate, data.terms[rows], data.features[rows], data.time_us[rows])


def log_errors(model: TimeModel, data: TrainingData, rows: Mask) -> Floats:
    errors: Floats = np.log(model.time_us(data.terms[rows], data.features[rows]) / data.time_us[rows])
    return errors


def held_out_errors(candidates: Sequence[str], data: TrainingData, fitted: Mask, held: Mask) -> dict[str, Floats]:
    """log(prediction / time) on the rows `held` of each candidate fitted on the rows `fitted`."""
    models = fit_candidates(candidates, data.terms[fitted], data.features[fitted], data.time_us[fitted])
    return {name: log_errors(model, data, held) for name, model in models.items()}
