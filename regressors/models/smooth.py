"""A smooth correction for small tables: Gaussian-kernel ridge regression that fades to a constant far from the samples."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regressors.features.arrays import Floats, weighed_sum

MAX_CENTRES = 200
LENGTHS = (0.5, 1.0, 2.0, 4.0)
"""Kernel widths to try, in root-mean-square standard deviations over the features."""
RIDGES = (1e-3, 1e-2, 1e-1, 1.0)
"""Ratios of noise to signal variance to try."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Smooth:
    """mean + Σ weight · exp(-‖z - centre‖² / 2·length²), clipped to the range of the training targets.

    z are the inputs, clipped to their training range, times `scale`: 1 / (deviation · √features), 0 for a constant input.
    """

    scale: Floats
    input_low: Floats
    input_high: Floats
    centres: Floats
    weights: Floats
    length: float
    mean: float
    lowest: float
    highest: float

    def predict(self, inputs: Floats) -> Floats:
        """Rows [rows, features] → [rows]."""
        clipped_inputs = np.clip(inputs, self.input_low, self.input_high)
        kernel = _kernel(clipped_inputs * self.scale, self.centres, self.length)
        clipped: Floats = np.clip(self.mean + weighed_sum(kernel, self.weights), self.lowest, self.highest)
        return clipped


def fit_smooth(inputs: Floats, target: Floats) -> Smooth:
    """Fit to distinct rows [rows, features] and targets [rows]; width and ridge minimise the closed-form leave-one-out error."""
    deviation = inputs.std(axis=0)
    varies = deviation > 1e-9 * np.maximum(1.0, np.abs(inputs).max(axis=0))
    scale = np.where(varies, 1 / np.where(varies, deviation, 1.0), 0.0) / np.sqrt(max(1, varies.sum()))
    rows = inputs * scale
    centres = rows[spread_subset(rows, MAX_CENTRES)]
    mean = float(target.mean())
    best: tuple[float, float, Floats] = (np.inf, 1.0, np.zeros(len(centres)))
    for length in LENGTHS:
        for ridge in RIDGES:
            error, weights = _ridge(rows, centres, target - mean, length, ridge)
            if error < best[0]:
                best = (error, length, weights)
    _, length, weights = best
    return Smooth(
        scale=scale,
        input_low=inputs.min(axis=0),
        input_high=inputs.max(axis=0),
        centres=centres,
        weights=weights,
        length=length,
        mean=mean,
        lowest=float(target.min()),
        highest=float(target.max()),
    )


def spread_subset(rows: Floats, count: int) -> NDArray[np.intp]:
    """Indices of up to `count` rows that cover the set: each next is the farthest from those chosen (Gonzalez, 1985)."""
    if len(rows) <= count:
        return np.arange(len(rows))
    chosen = [int(np.argmin(((rows - rows.mean(axis=0)) ** 2).sum(axis=1)))]
    gap = ((rows - rows[chosen[0]]) ** 2).sum(axis=1)
    while len(chosen) < count:
        chosen.append(int(np.argmax(gap)))
        gap = np.minimum(gap, ((rows - rows[chosen[-1]]) ** 2).sum(axis=1))
    return np.asarray(chosen)


def squared_distances(rows: Floats, others: Floats) -> Floats:
    """Squared distances [rows, others], from the expanded square; never negative."""
    cross = weighed_sum(rows, others.T)
    squares: Floats = (rows**2).sum(axis=1)[:, None] + (others**2).sum(axis=1) - 2 * cross
    return np.maximum(squares, 0.0)


def _kernel(rows: Floats, centres: Floats, length: float) -> Floats:
    kernel: Floats = np.exp(-squared_distances(rows, centres) / (2 * length**2))
    return kernel


def _ridge(rows: Floats, centres: Floats, target: Floats, length: float, ridge: float) -> tuple[float, Floats]:
    """Leave-one-out mean absolute error, and the weights.

    For a linear smoother the error on a row left out is residual / (1 - leverage).
    """
    basis = _kernel(rows, centres, length)
    # the small diagonal keeps near-duplicate centres solvable
    penalty = ridge * (_kernel(centres, centres, length) + 1e-8 * np.eye(len(centres)))
    normal = basis.T @ basis + penalty + 1e-10 * np.eye(len(centres))
    solved = np.linalg.solve(normal, basis.T)
    weights = solved @ target
    leverage = np.einsum("ij,ji->i", basis, solved)
    left_out = (target - basis @ weights) / np.maximum(1 - leverage, 1e-6)
    return float(np.abs(left_out).mean()), weights
