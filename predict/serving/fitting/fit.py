"""Coefficients fitted to measured loads, and how well they do on experiments that they were not fitted to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from predict.run.calibration.priors import NINETY
from predict.serving.batch import Floats
from predict.serving.features import Features
from predict.serving.fitting.bounded import bounded_weights, deviations
from predict.serving.fitting.observed import Observed, growth, mean_features
from predict.serving.step_model import StepModel

ERROR = 0.05
"""Relative error that a model of a step keeps at best, in whose units the priors count."""
ROUNDS = 4
"""Each takes the rows' importance from the weights of the one before."""
LEAST_MISS = 0.02
"""Relative misses below this count alike; a larger one counts by its size, not by its square, so that no single row decides."""
LEAST_DAMPING = 0.2
"""Bound of 1 − growth, near the load at which requests pile up without end."""
NINETY_PERCENT = 0.9


@dataclass(frozen=True, eq=False)
class CoefficientFit:
    """A model on measured loads. Its weights are those that keep the simulated time per token closest to the measured one."""

    model: StepModel
    observed: Sequence[Observed]
    features: Sequence[Features]

    @cached_property
    def rows(self) -> Floats:
        """Mean features, one row per load."""
        return np.array([mean_features(one, of) for one, of in zip(self.observed, self.features, strict=True)])

    @cached_property
    def growths(self) -> Floats:
        """Their change per µs of the time per token, one row per load."""
        return np.array([growth(one, of) for one, of in zip(self.observed, self.features, strict=True)])

    @cached_property
    def measured_us(self) -> Floats:
        return np.array([one.tpot_us for one in self.observed])

    @cached_property
    def weights(self) -> Floats:
        """Fitted to all loads."""
        return self._fitted(np.full(len(self.observed), True))

    def without(self, experiment: str) -> Floats:
        """Fitted to all loads but those of one experiment."""
        return self._fitted(np.array([one.experiment != experiment for one in self.observed]))

    def named(self, weights: Floats) -> dict[str, float]:
        return dict(zip(self.model.terms, map(float, weights), strict=True))

    @cached_property
    def left_out(self) -> Mapping[str, Floats]:
        """Experiment → the weights fitted without it."""
        return {name: self.without(name) for name in dict.fromkeys(one.experiment for one in self.observed)}

    def half_width(self) -> float:
        """Half-width in log time that covers 90 % of the loads whose experiment was left out."""
        weights = np.array([self.left_out[one.experiment] for one in self.observed])
        misses = np.abs(np.log((self.rows * weights).sum(axis=1) / self.measured_us))
        return float(np.quantile(misses, NINETY_PERCENT))

    def intervals(self) -> tuple[Floats, Floats]:
        """The 90 % interval of each weight: from the weights without one experiment each (the jackknife), or from the rows' own errors and
        the priors where that is wider, as it is where few experiments are alike."""
        each = np.array(list(self.left_out.values()))
        count = len(each)
        jackknife = np.sqrt((count - 1) / count * ((each - each.mean(axis=0)) ** 2).sum(axis=0))
        terms = list(self.model.terms.values())
        spread = NINETY * np.maximum(
            jackknife, deviations(self.rows, self.measured_us, np.ones(len(self.rows)), terms, ERROR)
        )
        low = np.array([term.low for term in self.model.terms.values()])
        high = np.array([term.high for term in self.model.terms.values()])
        return np.clip(self.weights - spread, low, high), np.clip(self.weights + spread, low, high)

    def _fitted(self, kept: np.ndarray) -> Floats:
        terms = list(self.model.terms.values())
        weights = np.array([term.prior for term in terms])
        if not kept.any():
            return weights
        rows, growths, measured = self.rows[kept], self.growths[kept], self.measured_us[kept]
        importance = np.ones(len(rows))
        for _ in range(ROUNDS):
            weights = bounded_weights(rows, measured, importance, terms, ERROR)
            # the error in a simulation over that of a step at the measured load
            grown = 1 / np.maximum(1 - growths @ weights, LEAST_DAMPING)
            misses = grown * np.abs(rows @ weights / measured - 1)
            importance = grown * np.sqrt(LEAST_MISS / np.maximum(misses, LEAST_MISS))
        return weights
