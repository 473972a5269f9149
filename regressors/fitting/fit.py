"""One operator from its samples to a fitted model with intervals."""

from collections.abc import Sequence

import numpy as np

from regressors.bank.fitted_operator import FittedOperator
from regressors.dataset.splits import by_shape, largest
from regressors.dataset.training_data import TrainingData
from regressors.features.arrays import Floats, Mask
from regressors.fitting.selection import HeldOut, choose, compare, competing, held_out_errors, tried
from regressors.fitting.settings_search import SettingsSearch
from regressors.models.candidates import BLEND, BOOSTED, CANDIDATES, fit_candidate
from regressors.models.domain import Domain, learn_domain
from regressors.models.roofline_fit import Roofline
from regressors.uncertainty.intervals import Intervals, calibrate
from regressors.uncertainty.novelty import is_new, learn_novelty
from regressors.uncertainty.sampled_times import tabulate


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
