"""Least squares within bounds, with a normal prior on each weight: convex, so that any descent finds the one answer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from predict.serving.batch import Floats
from predict.serving.step_model import StepTerm

ROUNDS = 200
CLOSE = 1e-9
TINY = 1e-300


def bounded_weights(
    features: Floats, target: Floats, importance: Floats, terms: Sequence[StepTerm], error: float
) -> Floats:
    """The weights that minimise Σ importance²·(features·w / target − 1)² / error² + Σ ((w − prior) / width)² within the bounds.

    `error` is the relative error that the model keeps at best, in whose units the prior counts. A term of width 0 keeps its prior.
    """
    rows, precision = _in_units(features, target, importance, error), _precision(terms)
    prior = np.array([term.prior for term in terms])
    low, high = np.array([term.low for term in terms]), np.array([term.high for term in terms])
    square = rows.T @ rows + np.diag(precision)
    wanted = rows.T @ (importance / error) + precision * prior
    return _within(square, wanted, low, high)


def deviations(features: Floats, target: Floats, importance: Floats, terms: Sequence[StepTerm], error: float) -> Floats:
    """Standard deviation of each weight by the same rows and priors, without the bounds: the prior's where no row tells of the weight;
    0 for a term that keeps its prior."""
    free = np.array([term.width > 0 for term in terms])
    rows = _in_units(features, target, importance, error)[:, free]
    square = rows.T @ rows + np.diag(_precision(terms)[free])
    found = np.zeros(len(terms))
    found[free] = np.sqrt(np.diag(np.linalg.inv(square)))
    return found


def _in_units(features: Floats, target: Floats, importance: Floats, error: float) -> Floats:
    """Features over the target, in units of the error that a row of that importance has."""
    scaled: Floats = features * (importance / target / error)[:, None]
    return scaled


def _precision(terms: Sequence[StepTerm]) -> Floats:
    return np.array([1 / term.width**2 if term.width else 0.0 for term in terms])


def _within(square: Floats, wanted: Floats, low: Floats, high: Floats) -> Floats:
    """The minimum of w·square·w / 2 − wanted·w within bounds: weights are held at a bound while the slope pushes them beyond it."""
    held = np.where(low == high, low, np.nan)
    for _ in range(ROUNDS):
        free = np.isnan(held)
        weights = held.copy()
        known = wanted[free] - square[np.ix_(free, ~free)] @ held[~free]
        weights[free] = np.linalg.lstsq(square[np.ix_(free, free)], known, rcond=None)[0]
        beyond = np.maximum(low - weights, weights - high) / np.maximum(high - low, TINY)
        beyond[~free] = 0.0
        if beyond.max() > CLOSE:
            worst = int(beyond.argmax())
            held[worst] = low[worst] if weights[worst] < low[worst] else high[worst]
            continue
        slope = square @ weights - wanted
        pulled = np.where(~free & (low < high), np.where(held == low, -slope, slope), 0.0)
        if pulled.max() <= CLOSE * np.abs(wanted).max():
            break
        held[int(pulled.argmax())] = np.nan
    return np.clip(weights, low, high)
