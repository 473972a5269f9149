"""A fitted time model: a roofline base, optionally with a learnt correction on top of it, or trees in its place; and what these are
fitted to."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from regressors.features.arrays import Floats
from regressors.models.domain import Domain
from regressors.models.roofline_fit import CLOCK_RESOLUTION_US, Roofline
from regressors.models.smooth import Smooth
from regressors.models.trees import FlatTrees


class Target(StrEnum):
    """The logarithm of the ratio of the time to the roofline fit, the time in µs, or the logarithm of the time."""

    LOG_RATIO = "log-ratio"
    TIME = "time"
    LOG_TIME = "log-time"


def encoded(target: Target, time_us: Floats) -> Floats:
    """Times [rows] in µs as what is fitted [rows], a time or its logarithm."""
    return np.log(time_us) if target == Target.LOG_TIME else time_us


def decoded(target: Target, fitted: Floats) -> Floats:
    """The inverse of `encoded`, in µs and at least the resolution of the clock."""
    time_us: Floats = np.exp(fitted) if target == Target.LOG_TIME else fitted
    return np.maximum(time_us, CLOCK_RESOLUTION_US)


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeModel:
    """time = base, base · exp(learnt), or learnt, as `target` says; several learnt components are averaged."""

    candidate: str
    base: Roofline
    learnt: tuple[FlatTrees | Smooth, ...]
    target: Target = Target.LOG_RATIO

    def time_us(self, terms: Floats, features: Floats, within: Domain | None = None) -> Floats:
        """Terms [calls, terms] and features [calls, features] → µs [calls], always positive.

        Trees on the time itself know nothing outside their samples, nor of another device: they answer for calls in `within`, the
        domain of their samples on the sampled device, and the base answers for the others. A call above the largest sample takes
        at least what the trees say, since time does not fall as work grows. The other kinds scale with the base everywhere.
        """
        base_us = self.base.time_us(terms)
        if not self.learnt:
            return base_us
        if self.target == Target.LOG_RATIO:
            ratio: Floats = np.exp(self._mean(correction_inputs(self.base, terms, features)))
            return np.maximum(base_us * ratio, CLOCK_RESOLUTION_US)
        if within is None:
            return base_us
        trees_us = self.trees_us(features)
        beyond_us = np.where(base_us > within.base_high, np.maximum(base_us, trees_us), base_us)
        return np.where(within.contains(terms, features), trees_us, beyond_us)

    def trees_us(self, features: Floats) -> Floats:
        """Times [calls] that trees on the time itself give wherever they are asked, as is common practice."""
        return decoded(self.target, self._mean(features))

    def _mean(self, inputs: Floats) -> Floats:
        total: Floats = sum((component.predict(inputs) for component in self.learnt), start=np.zeros(len(inputs)))
        return total / len(self.learnt)


def correction_inputs(base: Roofline, terms: Floats, features: Floats) -> Floats:
    """Inputs of a correction [calls, inputs]: the features, log2 of the base's time, and each resource's share of it."""
    return np.column_stack([features, np.log2(base.time_us(terms)), base.shares(terms)])
