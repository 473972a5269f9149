"""Distributions of response lengths that published figures of them leave: a mean, a longest, and perhaps the share that was cut."""

from __future__ import annotations

from collections.abc import Callable
from math import exp, log, sqrt
from statistics import NormalDist

USUAL_SIGMA = 0.6
"""Width of the logarithm of response lengths of reasoning models where nothing tells it, between 0.4 and 0.9 in logs of single runs."""
STEPS = 60
NORMAL = NormalDist()


def lognormal_of(mean: float, longest: float, clipped: float | None = None) -> str:
    """`lognormal:MEDIAN,SIGMA` whose lengths, cut to `longest`, have this mean, and where `clipped` is known this share that was cut.

    A mean that no such distribution has, since it is the longest length itself, gives a constant.
    """
    if mean >= 0.999 * longest:
        return f"constant:{round(longest)}"
    if not clipped:
        return _text(_median(mean, longest, USUAL_SIGMA), USUAL_SIGMA)
    quantile = NORMAL.inv_cdf(1 - clipped)

    def mean_at(sigma: float) -> float:
        return cut_mean(longest * exp(-sigma * quantile), sigma, longest)

    sigma = _bisected(lambda sigma: mean_at(sigma) - mean, 0.01, 5.0)
    return _text(longest * exp(-sigma * quantile), sigma)


def cut_mean(median: float, sigma: float, longest: float) -> float:
    """Mean of a lognormal that is cut: e^(μ+σ²/2)·Φ((ln L − μ − σ²)/σ) + L·(1 − Φ((ln L − μ)/σ))."""
    place = log(longest / median) / sigma
    return median * exp(sigma**2 / 2) * NORMAL.cdf(place - sigma) + longest * (1 - NORMAL.cdf(place))


def _median(mean: float, longest: float, sigma: float) -> float:
    return _bisected(lambda median: mean - cut_mean(median, sigma, longest), 1.0, 100 * longest)


def _bisected(falling: Callable[[float], float], low: float, high: float) -> float:
    """The place where a falling function is 0, by bisection of the logarithm."""
    for _ in range(STEPS):
        middle = sqrt(low * high)
        low, high = (middle, high) if falling(middle) > 0 else (low, middle)
    return sqrt(low * high)


def _text(median: float, sigma: float) -> str:
    return f"lognormal:{median:.1f},{sigma:.4f}"
