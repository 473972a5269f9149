"""90 % intervals from held-out errors, and the domain: whether a call lies among the samples."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from regressors.features.arrays import Floats, Mask
from regressors.models.smooth import spread_subset, squared_distances

COVERAGE = 0.9
UNKNOWN_HALF_WIDTH = math.log(2)
"""Half-width without any held-out error: a roofline that sums two resources and one that takes their maximum differ by at
most 2×."""
SAME_ARCHITECTURE_HALF_WIDTH = 0.25
"""Half-width added when a model is applied to another device of the same architecture, set so that 90 % of published times
are covered: between H100 and H200 that takes 0.11–0.13 for matrix products and experts, 0.22–0.31 for attention."""
OTHER_DEVICE_HALF_WIDTH = math.log(2)
"""The same for another architecture: between A100 and H100 it takes 0.3–0.5, and 0.5–0.8 for experts."""
NEAR_SHARE = 0.95
"""Share of the training rows whose distance to their nearest neighbour counts as near."""
CONSTANT_TOLERANCE = 0.5
"""A feature that was constant in the samples may differ by less than half a step: half an octave, half a flag."""
KEPT_ROWS = 512


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Domain:
    """The region of the samples: a box of terms, and closeness to a sample in standardised features.

    A call is inside if every term lies in the box, every constant feature has its constant value, and the nearest sample is
    as near as samples are to each other.
    """

    term_low: Floats
    term_high: Floats
    base_low: float
    base_high: float
    centre: Floats
    scale: Floats
    rows: Floats
    near: float

    def contains(self, terms: Floats, features: Floats) -> Mask:
        """Terms [calls, terms], features [calls, features] → [calls]."""
        slack = 1e-9 * self.term_high
        in_box = ((terms >= self.term_low - slack) & (terms <= self.term_high + slack)).all(axis=1)
        shifted = features - self.centre
        same = (np.abs(shifted[:, self.scale == 0]) < CONSTANT_TOLERANCE).all(axis=1)
        nearest = np.sqrt(squared_distances(shifted * self.scale, self.rows).min(axis=1))
        inside: Mask = in_box & same & (nearest <= self.near)
        return inside

    def octaves_beyond(self, base_us: Floats) -> Floats:
        """Doublings by which base times [calls] lie outside those of the samples [calls]; 0 inside."""
        beyond = np.maximum(np.log2(base_us / self.base_high), np.log2(self.base_low / base_us))
        return np.maximum(beyond, 0.0)


def learn_domain(terms: Floats, features: Floats, base_us: Floats) -> Domain:
    """The domain of training rows: terms [rows, terms], features [rows, features], base times [rows]."""
    distinct = np.unique(features, axis=0)
    centre = distinct.mean(axis=0)
    deviation = distinct.std(axis=0)
    varies = deviation > 1e-9 * np.maximum(1.0, np.abs(centre))
    scale = np.where(varies, 1 / np.where(varies, deviation, 1.0), 0.0)
    rows = (distinct - centre) * scale
    rows = rows[spread_subset(rows, KEPT_ROWS)]
    return Domain(
        term_low=terms.min(axis=0),
        term_high=terms.max(axis=0),
        base_low=float(base_us.min()),
        base_high=float(base_us.max()),
        centre=centre,
        scale=scale,
        rows=rows,
        near=_usual_gap(rows) + 1e-6,
    )


def _usual_gap(rows: Floats) -> float:
    """The NEAR_SHARE quantile of the distances from a row to its nearest neighbour; the largest if there are few rows."""
    if len(rows) < 2:
        return 0.0
    squares = squared_distances(rows, rows)
    np.fill_diagonal(squares, np.inf)
    gaps = np.sort(np.sqrt(squares.min(axis=1)))
    rank = min(len(gaps), math.ceil(NEAR_SHARE * (len(gaps) + 1)))
    return float(gaps[rank - 1])
