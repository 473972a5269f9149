"""A fitted time model: a roofline base, optionally with a learnt correction on top of it or trees in its place."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from regressors.features.arrays import Floats
from regressors.models.roofline_fit import CLOCK_RESOLUTION_US, Roofline
from regressors.models.smooth import Smooth
from regressors.models.trees import FlatTrees


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeModel:
    """time = base, base · exp(learnt) or learnt, as `candidate` says; several learnt components are averaged."""

    candidate: str
    base: Roofline
    learnt: tuple[FlatTrees | Smooth, ...]

    def time_us(self, terms: Floats, features: Floats) -> Floats:
        """Terms [calls, terms] and features [calls, features] → µs [calls], always positive."""
        if not self.learnt:
            return self.base.time_us(terms)
        if not self.candidate.startswith("hybrid-"):
            return np.maximum(self._mean(features), CLOCK_RESOLUTION_US)
        ratio: Floats = np.exp(self._mean(correction_inputs(self.base, terms, features)))
        return np.maximum(self.base.time_us(terms) * ratio, CLOCK_RESOLUTION_US)

    def _mean(self, inputs: Floats) -> Floats:
        total: Floats = sum((component.predict(inputs) for component in self.learnt), start=np.zeros(len(inputs)))
        return total / len(self.learnt)


def correction_inputs(base: Roofline, terms: Floats, features: Floats) -> Floats:
    """Inputs of a correction [calls, inputs]: the features, log2 of the base's time, and each resource's share of it."""
    return np.column_stack([features, np.log2(base.time_us(terms)), base.shares(terms)])
