"""The domain of a model: whether a call lies among the samples, and how far beyond them."""

import math
from dataclasses import dataclass

import numpy as np

from regressors.features.arrays import Floats, Mask
from regressors.models.smooth import spread_subset, squared_distances

NEAR_SHARE = 0.95
"""Share of the training rows whose distance to their nearest neighbour counts as near."""
CONSTANT_TOLERANCE = 0.5
"""A feature that was constant in the samples may differ by less than half a step: half an octave, half a flag."""
KEPT_ROWS = 512


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
