"""Times of the calls that were sampled themselves, averaged with the model's prediction if the sample is noisy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from regressors.features.arrays import Floats
from regressors.features.digests import row_digests
from regressors.uncertainty.intervals import half_width
from sampling.choosing.contradictions import WORK_FIELDS, excess_over_more_work

if TYPE_CHECKING:  # predicting needs no rows
    from regressors.dataset.training_data import TrainingData

DEVIATIONS_90 = 1.6449
"""Standard deviations from a normal's median to the ends of its central 90 %."""
MEDIAN_EFFICIENCY = 1.2533
"""Standard error of a median over that of a mean of normal repeats, √(π/2)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SampledTimes:
    """Times by shape digest [shapes], sorted by it."""

    shape: NDArray[np.uint64]
    median_us: Floats
    low_us: Floats
    high_us: Floats


def tabulate(data: TrainingData, unseen_log_errors: Floats, model_half_width: float) -> SampledTimes:
    """One row per distinct shape.

    A shape's median and the model's prediction without it (log error [rows], nan where there is none) are averaged in
    log time, weighted by precision: the sample's from the quantiles of its repeats and the noise between samplings, the
    model's from `model_half_width`. The interval is that of the errors on held-out moments, where shapes were sampled
    at several; else it covers the spread of the repeats and the noise between samplings. It is wider where the time
    contradicts that of more or of less work.
    """
    model_variance = (model_half_width / DEVIATIONS_90) ** 2
    moments = held_out_moments(data)
    # imported rows that were timed once have no estimate of their noise: weigh them as much as the model
    between = noise_between_samplings(data) or float(np.sqrt(model_variance))
    order = np.argsort(data.shape, kind="stable")
    shapes, starts = np.unique(data.shape[order], return_index=True)
    log_median, below, above = (np.zeros(len(shapes)) for _ in range(3))
    for index, rows in enumerate(np.split(order, starts[1:])):
        log_times = np.log(data.time_us[rows])
        spread = np.maximum(data.spread_below[rows], data.spread_above[rows])
        repeats_error = MEDIAN_EFFICIENCY * spread / np.sqrt(data.repeats[rows])
        variance = float(np.mean(repeats_error**2) + between**2) / len(rows)
        log_median[index] = float(np.median(log_times))
        predicted = float(np.median(log_times + unseen_log_errors[rows]))
        if not np.isnan(predicted) and variance + model_variance > 0:
            trust_in_model = variance / (variance + model_variance)
            log_median[index] += trust_in_model * (predicted - log_median[index])
        if len(moments):
            below[index] = above[index] = half_width(moments) * np.sqrt(1 + 1 / len(rows)) / DEVIATIONS_90
        else:
            below[index] = np.hypot(np.median(data.spread_below[rows]), between)
            above[index] = np.hypot(np.median(data.spread_above[rows]), between)
    if len(moments):
        at_odds = _contradictions(data, shapes, log_median) / DEVIATIONS_90
        below, above = np.hypot(below, at_odds), np.hypot(above, at_odds)
    return SampledTimes(
        shape=shapes,
        median_us=np.exp(log_median),
        low_us=np.exp(log_median - DEVIATIONS_90 * below),
        high_us=np.exp(log_median + DEVIATIONS_90 * above),
    )


def _contradictions(data: TrainingData, shapes: NDArray[np.uint64], log_median: Floats) -> Floats:
    """Excess in log time by which each shape contradicts one of more or of less work [shapes]."""
    _, first = np.unique(data.shape, return_index=True)
    codes = data.codes[first]
    of_work = np.array([name in WORK_FIELDS for name in data.fields], dtype=np.bool_)
    excess = np.zeros(len(shapes))
    apart = row_digests(codes[:, ~of_work])
    for alike in np.unique(apart):
        rows = apart == alike
        excess[rows] = excess_over_more_work(codes[rows][:, of_work], log_median[rows])
    return excess


def held_out_moments(data: TrainingData) -> Floats:
    """Log errors of each row that was sampled at several moments, predicted from the other moments of its shape, as if these were
    many; empty where every shape was sampled one time."""
    errors = []
    for shape in np.unique(data.shape):
        log_times = np.log(data.time_us[data.shape == shape])
        count = len(log_times)
        if count > 1:
            others = [float(np.median(np.delete(log_times, place))) for place in range(count)]
            errors.append((log_times - others) / np.sqrt(1 + 1 / (count - 1)))
    return np.concatenate(errors) if errors else np.zeros(0)


def noise_between_samplings(data: TrainingData) -> float:
    """Standard deviation of log time between samplings of one shape, pooled over shapes.

    If no shape was sampled twice, the typical spread of the repeats within a sampling is used instead.
    """
    log_times = np.log(data.time_us)
    _, which, counts = np.unique(data.shape, return_inverse=True, return_counts=True)
    which = which.reshape(-1)
    freedom = int((counts - 1).sum())
    if freedom:
        means = np.bincount(which, weights=log_times) / counts
        return float(np.sqrt(((log_times - means[which]) ** 2).sum() / freedom))
    return float(np.median(np.concatenate([data.spread_below, data.spread_above])))
