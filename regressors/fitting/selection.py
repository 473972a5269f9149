"""The choice of time model for an operator: least error on unseen shapes plus error on the largest shapes."""

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
"""One per fold and one more. With fewer shapes, held-out errors are too uncertain to choose by, and the roofline is used."""
MARGIN = 0.05
"""Relative margin by which the roofline alone must be better: a smaller difference depends on the few largest rows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldOut:
    """log(prediction / time) of one candidate on rows it was not fitted to.

    `unseen` [rows]: each row predicted from other shapes, nan where its fold was not fitted; `beyond` [largest rows]: the
    largest shapes predicted from the others.
    """

    unseen: Floats
    beyond: Floats

    @property
    def score(self) -> float:
        """Mean absolute log error on unseen shapes plus that on the largest, which penalises models that saturate."""
        splits = (self.unseen[~np.isnan(self.unseen)], self.beyond)
        return float(sum(np.abs(errors).mean() for errors in splits if len(errors)))


def compare(data: TrainingData, kinds: Sequence[str] = CANDIDATES) -> dict[str, HeldOut]:
    """Held-out errors of every kind; of the roofline alone if there are too few shapes."""
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
    """The candidate with the least score, but the blend unless the roofline alone is better by MARGIN."""
    if BLEND not in errors:
        return ROOFLINE
    return ROOFLINE if errors[ROOFLINE].score < (1 - MARGIN) * errors[BLEND].score else BLEND


def fit_rows(candidate: str, data: TrainingData, rows: Mask) -> TimeModel:
    return fit_candidate(candidate, data.terms[rows], data.features[rows], data.time_us[rows])


def log_errors(model: TimeModel, data: TrainingData, rows: Mask) -> Floats:
    errors: Floats = np.log(model.time_us(data.terms[rows], data.features[rows]) / data.time_us[rows])
    return errors


def held_out_errors(candidates: Sequence[str], data: TrainingData, fitted: Mask, held_out: Mask) -> dict[str, Floats]:
    """log(prediction / time) on the held-out rows, by candidate, each fitted to the rows `fitted`."""
    models = fit_candidates(candidates, data.terms[fitted], data.features[fitted], data.time_us[fitted])
    return {name: log_errors(model, data, held_out) for name, model in models.items()}
