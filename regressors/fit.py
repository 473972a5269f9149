"""One operator from its samples to a fitted model and the report on it."""

from __future__ import annotations

import numpy as np

from regressors.dataset import TrainingData
from regressors.fitted import FittedOperator
from regressors.intervals import Domain, Intervals, calibrate, learn_domain
from regressors.measured import tabulate
from regressors.report import OperatorReport, evaluate
from regressors.roofline_fit import Roofline
from regressors.selection import HeldOut, choose, compare, fit_rows
from regressors.splits import Mask, by_shape, largest


def fit_operator(data: TrainingData) -> tuple[FittedOperator, OperatorReport]:
    """Choose by held-out errors, fit on all rows, calibrate on the held-out errors of the choice."""
    errors = compare(data)
    candidate = choose(errors)
    held_out = errors[candidate]
    model = fit_rows(candidate, data, np.ones(len(data), dtype=np.bool_))
    intervals = _intervals(data, held_out, model.base)
    fitted = FittedOperator(
        key=data.key,
        schema=data.schema,
        model=model,
        intervals=intervals,
        domain=learn_domain(data.terms, data.features, model.base.time_us(data.terms)),
        measured=tabulate(data, held_out.unseen, intervals.inside),
    )
    return fitted, evaluate(data, errors, candidate)


def _intervals(data: TrainingData, held_out: HeldOut, base: Roofline) -> Intervals:
    """Calibrate on held-out errors, those of rows outside the domain of the rows kept apart from the others."""
    base_us = base.time_us(data.terms)

    def domain_without(held: Mask) -> Domain:
        return learn_domain(data.terms[~held], data.features[~held], base_us[~held])

    folds, top = by_shape(data.shape), largest(data.shape, data.terms)
    inside = np.zeros(len(data), dtype=np.bool_)
    for fold in folds:
        inside[fold] = domain_without(fold).contains(data.terms[fold], data.features[fold])
    outside_errors = np.concatenate([held_out.unseen[~inside], held_out.beyond]) if folds else held_out.beyond
    octaves = domain_without(top).octaves_beyond(base_us[top]) if top.any() else np.zeros(0)
    return calibrate(held_out.unseen[inside], outside_errors, octaves)
