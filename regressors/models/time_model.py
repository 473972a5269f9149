"""A fitted time model: a roofline base, optionally with a learnt correction on top of it, or trees in its place; and what these are
fitted to."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from regressors.features.arrays import Floats, weighed_sum
from regressors.models.domain import Domain
from regressors.models.smooth import Smooth
from regressors.models.trees import FlatTrees

# The physical base of a time model: a non-negative sum of a call's roofline terms plus a constant.
#
# time ≈ Σ slowdown_r · term_r + overhead, where term_r is µs at the stated peak of resource r (Williams et al., Roofline,
# CACM 2009, summed over resources instead of their maximum). It scales as the resources do, so it extrapolates.

CLOCK_RESOLUTION_US = 1e-3
"""Resolution of `time.perf_counter_ns` and CUDA events: no prediction is shorter."""

REPEAT_NOISE = 0.01
"""Least relative deviation that the fit assumes; repeats of a good sample differ by 0.3–4 %."""

HUBER_DEVIATIONS = 1.345
"""Residuals beyond this many deviations count linearly: 95 % efficient on clean data (Huber, 1964)."""

ITERATIONS = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class Roofline:
    """Slowdown against the stated peak per term (1 = at peak), and a constant overhead; none is negative."""

    slowdown: Floats
    overhead_us: float

    def time_us(self, terms: Floats) -> Floats:
        """Terms [calls, terms] in µs at peak → [calls] in µs, always positive."""
        total: Floats = np.maximum(weighed_sum(terms, self.slowdown) + self.overhead_us, CLOCK_RESOLUTION_US)
        return total

    def shares(self, terms: Floats) -> Floats:
        """Share of the time that each term takes [calls, terms]; the rest is overhead."""
        shares: Floats = terms * self.slowdown / self.time_us(terms)[:, None]
        return shares


def fit_roofline(terms: Floats, time_us: Floats) -> Roofline:
    """Fit by iterated non-negative least squares on relative errors, so that small and large calls weigh the same.

    Squared residuals are weighed by time^-½ · fit^-³⁄₂: then the fixed point solves Σ sinh(½ log(fit / time)) ∂fit/fit = 0,
    odd in the log error, so that log-normal noise leaves no bias. Huber's weights bound the influence of a few bad rows.
    A weak prior (deviation 100 %) pulls every slowdown towards a common one, and decides where the data do not: for a single
    row, or for terms that always grow together.
    """
    from scipy.optimize import nnls

    work = terms.sum(axis=1)
    busy = work > 0
    common = float(np.exp(np.median(np.log(time_us[busy] / work[busy])))) if busy.any() else 1.0
    typical_us = float(np.median(time_us))
    columns = np.column_stack([terms * common, np.full(len(terms), typical_us)])
    expected = np.append(np.ones(terms.shape[1]), 0.0 if busy.any() else 1.0)
    fitted, trust, deviation = time_us, np.ones(len(time_us)), REPEAT_NOISE
    for _ in range(ITERATIONS):
        weight = np.sqrt(trust) * time_us**-0.25 * fitted**-0.75
        design = np.vstack([columns * weight[:, None], np.eye(len(expected)) * deviation])
        solution, _ = nnls(design, np.concatenate([time_us * weight, expected * deviation]))
        fitted = np.maximum(columns @ solution, CLOCK_RESOLUTION_US)
        residual = np.abs(np.log(time_us / fitted))
        # 1.4826 makes the median absolute deviation the standard deviation of a normal
        deviation = max(REPEAT_NOISE, 1.4826 * float(np.median(residual)))
        trust = np.minimum(1.0, HUBER_DEVIATIONS * deviation / np.maximum(residual, REPEAT_NOISE))
    return Roofline(slowdown=solution[:-1] * common, overhead_us=float(solution[-1] * typical_us))


# The model on top of it.


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
