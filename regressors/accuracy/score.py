"""One table and one split: fitted on the rest as a user's samples would be, and held against the rows left out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from regressors.bank.fitted_operator import FittedOperator
from regressors.bank.packing import Pools
from regressors.dataset.training_data import TrainingData
from regressors.features.arrays import Floats, Mask
from regressors.features.pricing import price_all
from regressors.fitting.fit import fit_chosen
from regressors.fitting.selection import choose, compare, held_out_errors
from regressors.models.candidates import FOREST, RAW_BOOSTED
from sampling.call import Call
from sampling.hardware.cluster import Cluster

RAW = (FOREST, RAW_BOOSTED)
MOST_FOR_A_FOREST = 12_000
"""Rows beyond which a forest on raw time takes longer than all else together; XGBoost stands for it."""
MANY_PREDICTIONS = 10_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """Errors in percent on the `rows` held out; `coverage` is the share of them in the 90 % interval.

    `inside` is the share that the model says lies among its samples; `raw_forest` (None of too many rows) and
    `raw_xgboost` are the mean errors of trees on raw time, the common practice. `fit_s` covers choosing, fitting and
    calibrating; `model_bytes` is what is kept of it.
    """

    rows: int
    fitted_rows: int
    candidate: str
    mape: float
    median: float
    p90: float
    coverage: float
    half_width: float
    inside: float
    raw_forest: float | None
    raw_xgboost: float
    fit_s: float
    model_bytes: int
    predict_1_s: float | None
    predict_10000_s: float | None


def score(data: TrainingData, held: Mask, calls: Sequence[Call] = (), cluster: Cluster | None = None) -> Score:
    """Fit on the rows not `held`, choice of candidate and intervals included, and judge on the others.

    With `calls` and their cluster, predicting is timed too, from calls to times, nothing of it remembered.
    """
    fitted, fit_s = fit_timed(subset(data, ~held))
    predicted = fitted.columns(data.terms[held], data.features[held], data.codes[held])
    time_us = data.time_us[held]
    error = 100 * np.abs(predicted.median_us / time_us - 1)
    raw = held_out_errors(RAW if len(data) <= MOST_FOR_A_FOREST else RAW[1:], data, ~held, held)
    many = [calls[place % len(calls)] for place in range(MANY_PREDICTIONS)] if calls else []
    return Score(
        rows=int(held.sum()),
        fitted_rows=int((~held).sum()),
        candidate=fitted.model.candidate,
        mape=float(error.mean()),
        median=float(np.median(error)),
        p90=float(np.quantile(error, 0.9)),
        coverage=float((np.abs(np.log(predicted.median_us / time_us)) <= predicted.half_width).mean()),
        half_width=float(np.median(predicted.half_width)),
        inside=float(predicted.inside.mean()),
        raw_forest=_mape(raw[FOREST]) if FOREST in raw else None,
        raw_xgboost=_mape(raw[RAW_BOOSTED]),
        fit_s=fit_s,
        model_bytes=model_bytes(fitted),
        predict_1_s=_seconds(fitted, many[:1], cluster),
        predict_10000_s=_seconds(fitted, many, cluster),
    )


def fit_timed(data: TrainingData) -> tuple[FittedOperator, float]:
    """What `make train-regressors` does for one operator, less its report, and the seconds it takes."""
    start = time.perf_counter()
    errors = compare(data)
    candidate = choose(errors)
    fitted = fit_chosen(data, candidate, errors[candidate])
    return fitted, time.perf_counter() - start


def subset(data: TrainingData, rows: Mask) -> TrainingData:
    names = ("terms", "features", "time_us", "spread_below", "spread_above", "repeats", "shape", "codes")
    return replace(data, **{name: getattr(data, name)[rows] for name in names})


def _seconds(fitted: FittedOperator, calls: Sequence[Call], cluster: Cluster | None) -> float | None:
    """The least of three runs."""
    if not calls or cluster is None:
        return None
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        fitted.predict(price_all(calls, fitted.key.phase, cluster))
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def model_bytes(fitted: FittedOperator) -> int:
    """Of the arrays that the artifact keeps, the sampled times themselves left out."""
    pools = Pools()
    for part in (fitted.model.base, *fitted.model.learnt, fitted.intervals, fitted.domain, fitted.novelty):
        pools.pack(part)
    return sum(array.nbytes for array in pools.arrays().values())


def _mape(log_errors: Floats) -> float:
    return float(100 * np.mean(np.abs(np.expm1(log_errors))))
