"""Which candidate to use for an operator: the one that errs least on unseen shapes and on the largest ones together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from regressors.candidates import CANDIDATES, ROOFLINE, fit_candidate
from regressors.dataset import TrainingData
from regressors.features import Floats
from regressors.model import TimeModel
from regressors.splits import Mask, by_shape, largest

MIN_SHAPES_TO_LEARN = 6
"""A fold each and one over: below, a held-out error says too little to choose by, and the roofline has no rival."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldOut:
    """log(prediction / time) of one candidate on rows it was not fitted on.

    `unseen` [rows] covers every row, each predicted without its shape (nan where there is one shape only); `beyond` are
    the largest shapes, predicted from the rest.
    """

    unseen: Floats
    beyond: Floats

    @property
    def score(self) -> float:
        """Mean absolute log error on unseen shapes plus the same on the largest: a saturating model pays for the latter."""
        parts = [part for part in (self.unseen, self.beyond) if len(part) and not np.isnan(part).any()]
        return float(sum(np.abs(part).mean() for part in parts))


def compare(data: TrainingData) -> dict[str, HeldOut]:
    """Held-out errors of every candidate that the number of shapes allows."""
    candidates = CANDIDATES if data.shapes >= MIN_SHAPES_TO_LEARN else (ROOFLINE,)
    folds = by_shape(data.shape)
    top = largest(data.shape, data.terms)
    return {candidate: _held_out(candidate, data, folds, top) for candidate in candidates}


def choose(errors: Mapping[str, HeldOut]) -> str:
    return min(errors, key=lambda candidate: errors[candidate].score)


def fit_rows(candidate: str, data: TrainingData, rows: Mask | Sequence[int]) -> TimeModel:
    return fit_candidate(candidate, data.terms[rows], data.features[rows], data.time_us[rows])


def log_errors(model: TimeModel, data: TrainingData, rows: Mask) -> Floats:
    errors: Floats = np.log(model.time_us(data.terms[rows], data.features[rows]) / data.time_us[rows])
    return errors


def _held_out(candidate: str, data: TrainingData, folds: Sequence[Mask], top: Mask) -> HeldOut:
    unseen = np.full(len(data), np.nan)
    for fold in folds:
        unseen[fold] = log_errors(fit_rows(candidate, data, ~fold), data, fold)
    beyond = log_errors(fit_rows(candidate, data, ~top), data, top) if top.any() else np.zeros(0)
    return HeldOut(unseen=unseen, beyond=beyond)
