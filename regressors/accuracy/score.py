"""The score of a time model on held-out rows: by cross-validation while training, or refitted without the rows at all."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from regressors.accuracy.units import Unit
from regressors.bank.artifact import Pools
from regressors.bank.fitted_operator import Columns, FittedOperator
from regressors.dataset.donor import Donor
from regressors.dataset.splits import LARGE_TABLE_ROWS, at_random, by_shape, random_rows
from regressors.dataset.training_data import TrainingData, training_data
from regressors.features.arrays import Floats, Mask
from regressors.features.pricing import price_all
from regressors.fitting.fit import (
    ALONE,
    FOREST_ALONE,
    MIN_SHAPES_TO_LEARN,
    XGBOOST_ALONE,
    HeldOut,
    choose,
    fit_operator,
    held_out_errors,
    tried,
)
from regressors.fitting.settings_search import Best, SettingsSearch
from regressors.uncertainty.intervals import half_width, half_width_elsewhere
from sampling.call import Call
from sampling.hardware.cluster import Cluster

FOREST_ROWS = 12_000
"""Largest table on which a random forest on raw time is fitted too: beyond, it takes longer than everything else together."""
MANY_PREDICTIONS = 10_000
CHOICE = "choice"


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """Errors in percent on `rows` held-out rows; `coverage` is the share of them inside the 90 % interval.

    `raw_forest` and `raw_xgboost` are the mean errors of tuned trees on the time itself, alone, the common practice; None where they
    were not fitted. `time_us` is the measured time of all of the table's rows, by which it weighs in a mean. `fit_s` covers choosing,
    fitting and calibrating; `model_bytes` is the size of what is kept.
    """

    rows: int
    candidate: str
    mape: float
    median: float
    p90: float
    coverage: float | None
    raw_forest: float | None
    raw_xgboost: float | None
    time_us: float
    fit_s: float | None = None
    model_bytes: int | None = None
    predict_1_s: float | None = None
    predict_10000_s: float | None = None


def rivals(data: TrainingData) -> Sequence[str]:
    """The kinds that are scored beside the choice: trees alone, where there are enough shapes to hold out and few enough rows to
    be quick."""
    return [*ALONE] if data.shapes >= MIN_SHAPES_TO_LEARN and len(data) < LARGE_TABLE_ROWS else []


def _score(
    data: TrainingData, candidate: str, log_errors: Floats, coverage: float | None, raw: Mapping[str, Floats]
) -> Score:
    error = _percent(log_errors)
    raw_forest, raw_xgboost = (float(_percent(raw[name]).mean()) if name in raw else None for name in ALONE)
    return Score(
        rows=len(error),
        candidate=candidate,
        mape=float(error.mean()),
        median=float(np.median(error)),
        p90=float(np.quantile(error, 0.9)),
        coverage=coverage,
        raw_forest=raw_forest,
        raw_xgboost=raw_xgboost,
        time_us=float(data.time_us.sum()),
    )


def _percent(log_errors: Floats) -> Floats:
    errors: Floats = 100 * np.abs(np.expm1(log_errors))
    return errors


def cross_validate(
    data: TrainingData, candidate: str, errors: Mapping[str, HeldOut], search: SettingsSearch
) -> dict[str, Score]:
    """Scores by split of an operator, from the held-out errors of all kinds; `candidate` is the one that all rows chose.

    The candidate that predicts a fold is chosen again from the errors on the rows of the other folds, so that no error judges a choice
    that it took part in. One choice is not made again: trees that lost the race in `compare`, to which every fold up to then adds its
    errors, are no candidates in any fold.
    """
    alone = {name: held_out for name, held_out in errors.items() if name in ALONE}
    unseen, beyond = _chosen_without(data, errors)
    at_random_errors = [_at_random(data, mask, errors, search) for mask in at_random(len(data))]
    by_split: dict[str, dict[str, Floats]] = {
        "random": {name: np.concatenate([of[name] for of in at_random_errors]) for name in (CHOICE, *alone)}
        if at_random_errors
        else {},
        "shape": {CHOICE: unseen} | {name: held_out.unseen for name, held_out in alone.items()},
        "extrapolation": {CHOICE: beyond} | {name: held_out.beyond for name, held_out in alone.items()},
    }
    known = {split: {name: tried(of_kind) for name, of_kind in of.items()} for split, of in by_split.items()}
    return {
        split: _score(data, candidate, of[CHOICE], _coverage(data, unseen) if split == "shape" else None, of)
        for split, of in known.items()
        if of and len(of[CHOICE])
    }


def _chosen_without(data: TrainingData, errors: Mapping[str, HeldOut]) -> tuple[Floats, Floats]:
    """Errors [rows] on unseen shapes and on the largest ones, of the candidate that the rows of the other folds choose."""
    unseen, beyond = np.full((2, len(data)), np.nan)
    folds = by_shape(data.shape)
    rest = ~np.any(folds, axis=0) if folds else np.ones(len(data), dtype=np.bool_)
    for fold in (*folds, rest):
        chosen = errors[choose(errors, ~fold)]
        unseen[fold], beyond[fold] = chosen.unseen[fold], chosen.beyond[fold]
    return unseen, beyond


def _at_random(
    data: TrainingData, mask: Mask, errors: Mapping[str, HeldOut], search: SettingsSearch
) -> dict[str, Floats]:
    """Errors on the rows of the mask, of the candidate that the other rows choose and of the kinds beside it."""
    chosen = choose(errors, ~mask)
    found = held_out_errors(
        [chosen, *(name for name in errors if name in ALONE)], data, ~mask, mask, search.settings_for(~mask)
    )
    return {CHOICE if name == chosen else name: of_kind for name, of_kind in found.items()}


def _coverage(data: TrainingData, unseen: Floats) -> float | None:
    """Share of each fold's errors inside the interval that the other folds' errors give; None for fewer than three folds."""
    folds = by_shape(data.shape)
    if len(folds) < 3:
        return None
    inside = [np.abs(unseen[fold]) <= half_width(unseen[~fold]) for fold in folds]
    return float(np.concatenate(inside).mean())


def score_without(
    data: TrainingData, held_out: Mask, calls: Sequence[Call] = (), cluster: Cluster | None = None
) -> tuple[Score, dict[str, Best]]:
    """Fit on the rows not held out, choice of candidate, settings and intervals included, and score on the others; with the settings of
    trees that were found.

    With `calls` and their cluster, the time to predict them is measured too, from calls to times without any cache.
    """
    seen = subset(data, ~held_out)
    search = SettingsSearch(seen)
    fitted, fit_s = fit_timed(seen, search)
    predicted = fitted.columns(data.terms[held_out], data.features[held_out], data.codes[held_out])
    log_errors = np.log(predicted.median_us / data.time_us[held_out])
    kinds = (FOREST_ALONE, XGBOOST_ALONE) if len(data) <= FOREST_ROWS else (XGBOOST_ALONE,)
    raw = held_out_errors(kinds, data, ~held_out, held_out, search.settings_for(np.ones(len(seen), dtype=np.bool_)))
    coverage = float((np.abs(log_errors) <= predicted.half_width).mean())
    many = [calls[place % len(calls)] for place in range(MANY_PREDICTIONS)] if calls else []
    score = replace(
        _score(data, fitted.model.candidate, log_errors, coverage, raw),
        fit_s=fit_s,
        model_bytes=model_bytes(fitted),
        predict_1_s=_seconds(fitted, many[:1], cluster),
        predict_10000_s=_seconds(fitted, many, cluster),
    )
    return score, search.bests([ALONE[kind] for kind in kinds])


def fit_timed(data: TrainingData, search: SettingsSearch | None = None) -> tuple[FittedOperator, float]:
    """An operator fitted as `make train-regressors` does, and the seconds of processor time that took."""
    start = time.process_time()
    fitted, _ = fit_operator(data, search=search)
    return fitted, time.process_time() - start


def subset(data: TrainingData, rows: Mask) -> TrainingData:
    """The same table with only the rows of the mask."""
    names = ("terms", "features", "time_us", "spread_below", "spread_above", "repeats", "shape", "codes")
    return replace(data, **{name: getattr(data, name)[rows] for name in names})


def _seconds(fitted: FittedOperator, calls: Sequence[Call], cluster: Cluster | None) -> float | None:
    """Least processor time of three predictions of all calls."""
    if not calls or cluster is None:
        return None
    seconds = []
    for _ in range(3):
        start = time.process_time()
        fitted.predict(price_all(calls, fitted.key.phase, cluster))
        seconds.append(time.process_time() - start)
    return min(seconds)


def model_bytes(fitted: FittedOperator) -> int:
    """Size of the arrays that the artifact keeps, without the sampled times themselves."""
    pools = Pools()
    for component in (fitted.model.base, *fitted.model.learnt, fitted.intervals, fitted.domain, fitted.novelty):
        pools.pack(component)
    return sum(array.nbytes for array in pools.arrays().values())


# Transfer: one device's model scored on another device's rows, unchanged and corrected with a few hundred of those rows.

DONOR_ROWS = 9_000
"""Rows of the first device to fit; more do not improve the transfer."""
OWN_ROWS = 300
TEST_ROWS = 6_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Transfer:
    """Errors in percent on rows of the `target` device of a model of the `source` device.

    `own_rows` is the number of other rows of the target that the model was corrected with, `log_error_90` the half-width in
    log time that would have covered 90 % of the rows.
    """

    source: str
    target: str
    family: str
    own_rows: int
    rows: int
    mape: float
    p90: float
    coverage: float
    log_error_90: float


def transfers(units: Sequence[Unit]) -> Iterator[Transfer]:
    """Every pair of devices with tables of a family, except collectives: the catalogue describes their links too coarsely."""
    usable = [unit for unit in units if unit.family not in ("", "nccl") and unit.data is not None]
    for source in usable:
        others = [unit for unit in usable if unit.family == source.family and _device(unit) != _device(source)]
        if others:
            assert source.data is not None
            donor, _ = fit_timed(subset(source.data, random_rows(len(source.data), DONOR_ROWS)))
            for target in others:
                yield from _transfer(source, donor, target)


def _transfer(source: Unit, donor: FittedOperator, target: Unit) -> Iterator[Transfer]:
    assert source.cluster and target.cluster and target.data is not None
    own = random_rows(len(target.calls), OWN_ROWS)
    tested = ~own & random_rows(len(target.calls), TEST_ROWS + OWN_ROWS)
    calls = [call for call, wanted in zip(target.calls, tested, strict=True) if wanted]
    priced = price_all(calls, target.data.key.phase, target.cluster)
    codes = np.array([row.codes for row in priced])
    elsewhere = half_width_elsewhere(source.cluster.gpu.architecture, target.cluster.gpu.architecture)
    carried = donor.columns(*donor.schema.matrices(priced), codes, elsewhere=elsewhere)
    yield _scored(source, target, 0, carried, tested)
    few = _lent(target, Donor(schema=donor.schema, model=donor.model), target.cluster)
    fitted, _ = fit_timed(subset(few, own))
    refined = fitted.columns(few.terms[tested], few.features[tested], few.codes[tested])
    yield _scored(source, target, OWN_ROWS, refined, tested)


def _lent(target: Unit, donor: Donor, cluster: Cluster) -> TrainingData:
    (data,) = training_data(((sample, cluster) for sample in target.samples), lambda key: donor)
    return data


def _scored(source: Unit, target: Unit, own_rows: int, predicted: Columns, tested: Mask) -> Transfer:
    assert target.data is not None
    time_us = target.data.time_us[tested]
    error = 100 * np.abs(predicted.median_us / time_us - 1)
    log_error = np.abs(np.log(predicted.median_us / time_us))
    return Transfer(
        source=_device(source),
        target=_device(target),
        family=target.family,
        own_rows=own_rows,
        rows=len(time_us),
        mape=float(error.mean()),
        p90=float(np.quantile(error, 0.9)),
        coverage=float((log_error <= predicted.half_width).mean()),
        log_error_90=float(np.quantile(log_error, 0.9)),
    )


def _device(unit: Unit) -> str:
    return unit.group[1]
