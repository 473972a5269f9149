"""A fitted time model at work: a physical base, and maybe a learnt correction on top of it or a tree in its place."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from regressors.features.arrays import Floats
from regressors.models.roofline_fit import CLOCK_RESOLUTION_US, Roofline
from regressors.models.smooth import Smooth
from regressors.models.trees import FlatTrees


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeModel:
    """time = base, base · exp(learnt) or learnt, as `candidate` says; several learnt parts are averaged, none is the base."""

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
        total: Floats = sum((part.predict(inputs) for part in self.learnt), start=np.zeros(len(inputs)))
        return total / len(self.learnt)


def correction_inputs(base: Roofline, terms: Floats, features: Floats) -> Floats:
    """What a correction looks at [calls, ...]: the features, the base's log time, and each resource's share of it."""
    return np.column_stack([features, np.log2(base.time_us(terms)), base.shares(terms)])
