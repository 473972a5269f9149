"""90 % intervals from held-out errors, inside the domain of the samples and beyond it."""

import math
from dataclasses import dataclass

import numpy as np

from regressors.features.arrays import Floats, Mask

COVERAGE = 0.9
UNKNOWN_HALF_WIDTH = math.log(2)
"""Half-width without any held-out error: a roofline that sums two resources and one that takes their maximum differ by at
most 2×."""
SAME_ARCHITECTURE_HALF_WIDTH = 0.25
"""Half-width added when a model is applied to another device of the same architecture, set so that 90 % of published times
are covered: between H100 and H200 that takes 0.11–0.13 for matrix products and experts, 0.22–0.31 for attention."""
OTHER_DEVICE_HALF_WIDTH = math.log(2)
"""The same for another architecture: between A100 and H100 it takes 0.3–0.5, and 0.5–0.8 for experts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Intervals:
    """Half-widths of log time: `inside` the domain of the samples, and `outside` up to `octaves` of base time beyond it.

    Further out the half-width grows with the square root of the distance, as a random walk of the efficiency per octave
    would.
    """

    inside: float
    outside: float
    octaves: float

    def half_width(self, inside: Mask, octaves: Floats) -> Floats:
        half: Floats = np.where(inside, self.inside, self._beyond(octaves))
        return half

    def _beyond(self, octaves: Floats) -> Floats:
        half: Floats = self.outside * np.sqrt(np.maximum(1.0, octaves / self.octaves))
        return half


def calibrate(held_out: Floats, beyond: Floats, octaves: Floats) -> Intervals:
    """Intervals from held-out log errors inside the domain and beyond it; `octaves` are the distances of the largest rows.

    If there are errors of one kind only, they are used for the other kind too, with at least UNKNOWN_HALF_WIDTH outside.
    """
    inside = half_width(held_out if len(held_out) else beyond)
    outside = max(inside, half_width(beyond) if len(beyond) else UNKNOWN_HALF_WIDTH)
    reference = float(np.median(octaves)) if len(octaves) else 1.0
    return Intervals(inside=inside, outside=outside, octaves=reference if reference > 0 else 1.0)


def half_width_elsewhere(sampled: str, architecture: str) -> float:
    """Half-width added on a device of `architecture` to a model that was sampled on another device."""
    return SAME_ARCHITECTURE_HALF_WIDTH if sampled == architecture else OTHER_DEVICE_HALF_WIDTH


def half_width(log_errors: Floats) -> float:
    """Half-width that covers a new row with probability 90 %.

    The split-conformal quantile ⌈0.9 (n + 1)⌉ (Vovk et al., 2005) for 9 errors and more; Student's prediction interval for
    normal errors of mean zero for fewer, where that quantile does not exist.
    """
    count = len(log_errors)
    if count == 0:
        return UNKNOWN_HALF_WIDTH
    rank = math.ceil(COVERAGE * (count + 1))
    if rank <= count:
        return float(np.sort(np.abs(log_errors))[rank - 1])
    from scipy.stats import t

    return float(t.ppf((1 + COVERAGE) / 2, count) * np.sqrt(np.mean(log_errors**2)))
