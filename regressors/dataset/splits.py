"""Ways to hold rows out. A shape's rows stay together except in the random split, whose leak is what it shows."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from regressors.features.arrays import Floats, Mask

FOLDS = 5
FOLDS_OF_MANY = 3
"""From MANY_ROWS on: a model of two thirds of so many errs hardly more than one of four fifths."""
MANY_ROWS = 2000
MOST_ROWS = 10_000
"""From here on a single fold says enough, and takes a third of the time."""
HELD_OUT_SHARE = 0.2
RANDOM_SEEDS = (0, 1, 2)


def by_shape(shape: NDArray[np.uint64]) -> list[Mask]:
    """Held-out masks of up to FOLDS folds of distinct shapes, of the first fold alone where rows are many; none for a single
    shape."""
    distinct, which = np.unique(shape, return_inverse=True)
    folds = min(FOLDS_OF_MANY if MANY_ROWS <= len(shape) < MOST_ROWS else FOLDS, len(distinct))
    if folds < 2:
        return []
    fold = np.random.default_rng(0).permutation(len(distinct)) % folds
    tried = 1 if len(shape) >= MOST_ROWS else folds
    return [fold[which.reshape(-1)] == number for number in range(tried)]


def largest(shape: NDArray[np.uint64], terms: Floats) -> Mask:
    """The fifth of the shapes with the most work, by the sum of their terms; nothing of fewer than three shapes."""
    work = terms.sum(axis=1)
    distinct, first = np.unique(shape, return_index=True)
    if len(distinct) < 3:
        return np.zeros(len(shape), dtype=np.bool_)
    count = math.ceil(HELD_OUT_SHARE * len(distinct))
    chosen = distinct[np.argsort(work[first], kind="stable")[-count:]]
    return np.isin(shape, chosen)


def at_random(rows: int) -> list[Mask]:
    """A fifth of the rows, whatever their shapes, once a seed, of many rows once; none for a single row."""
    if rows < 2:
        return []
    count = max(1, round(HELD_OUT_SHARE * rows))
    masks = []
    for seed in RANDOM_SEEDS if rows < MANY_ROWS else RANDOM_SEEDS[:1]:
        mask = np.zeros(rows, dtype=np.bool_)
        mask[np.random.default_rng(seed).permutation(rows)[:count]] = True
        masks.append(mask)
    return masks
