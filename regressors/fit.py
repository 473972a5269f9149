"""One operator from its samples to a fitted model and the report on it."""

from __future__ import annotations

import numpy as np

from regressors.dataset import TrainingData
from regressors.fitted import FittedOperator
from regressors.intervals import calibrate, learn_domain
from regressors.measured import tabulate
from regressors.report import OperatorReport, evaluate
from regressors.selection import choose, compare, fit_rows, octaves_beyond


def fit_operator(data: TrainingData) -> tuple[FittedOperator, OperatorReport]:
    """Choose by held-out errors, fit on all rows, calibrate on the held-out errors of the choice."""
    errors = compare(data)
    candidate = choose(errors)
    held_out = errors[candidate]
    model = fit_rows(candidate, data, np.ones(len(data), dtype=np.bool_))
    unseen = held_out.unseen[~np.isnan(held_out.unseen)]
    intervals = calibrate(unseen, held_out.beyond, octaves_beyond(data))
    fitted = FittedOperator(
        key=data.key,
        schema=data.schema,
        model=model,
        intervals=intervals,
        domain=learn_domain(data.terms, data.features, model.base.time_us(data.terms)),
        measured=tabulate(data, held_out.unseen, intervals.inside),
    )
    return fitted, evaluate(data, errors, candidate)
