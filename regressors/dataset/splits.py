"""Rows held out to test a time model on: random ones, unseen shapes, the largest shapes.

All rows of a shape stay together except in the random split, which shows how much a leaked shape flatters a model.
"""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from regressors.dataset.training_data import TrainingData
from regressors.features.arrays import Floats, Mask
from regressors.features.digests import row_digests

SPLITS = ("random", "shape", "extrapolation")
FOLDS = 5
FOLDS_OF_LARGE_TABLES = 3
"""Folds from LARGE_TABLE_ROWS on: a model fitted on two thirds of that many rows errs hardly more than one fitted on four fifths."""
LARGE_TABLE_ROWS = 2000
ONE_FOLD_ROWS = 10_000
"""Rows from which a single fold is precise enough, and takes a third of the time."""
HELD_OUT_SHARE = 0.2
RANDOM_SEEDS = (0, 1, 2)

UNSEEN_VALUES: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    "gemm": {"n": (768, 2560, 5120, 12288), "k": (768, 2560, 5120, 12288)},
    "attention": {"heads": (12, 20, 40)},
    "nccl": {"ranks": (4,)},
}
"""Field values of published tables that are held out whole, as in the figures that others publish of these tables."""
MODEL_FIELDS = ("hidden", "inter", "topk", "experts")
EXTRAPOLATION_THRESHOLDS: Mapping[str, Mapping[str, int]] = {
    "gemm": {"n": 51_200, "k": 51_200},
    "attention": {"seq_len": 12_000},
    "moe": {"tokens": 12_000},
    "nccl": {"size_bytes": 128 * 2**20},
}


def by_shape(shape: NDArray[np.uint64]) -> list[Mask]:
    """Held-out masks of up to FOLDS folds of distinct shapes; only the first fold of a table of ONE_FOLD_ROWS or more.

    Empty for a single shape.
    """
    distinct, which = np.unique(shape, return_inverse=True)
    folds = FOLDS_OF_LARGE_TABLES if LARGE_TABLE_ROWS <= len(shape) < ONE_FOLD_ROWS else FOLDS
    folds = min(folds, len(distinct))
    if folds < 2:
        return []
    fold = np.random.default_rng(0).permutation(len(distinct)) % folds
    fitted_folds = 1 if len(shape) >= ONE_FOLD_ROWS else folds
    return [fold[which.reshape(-1)] == number for number in range(fitted_folds)]


def largest(shape: NDArray[np.uint64], terms: Floats) -> Mask:
    """The fifth of the shapes with the most work, by the sum of their terms; no rows if there are fewer than three shapes."""
    work = terms.sum(axis=1)
    distinct, first = np.unique(shape, return_index=True)
    if len(distinct) < 3:
        return np.zeros(len(shape), dtype=np.bool_)
    count = math.ceil(HELD_OUT_SHARE * len(distinct))
    return np.isin(shape, distinct[np.argsort(work[first], kind="stable")[-count:]])


def at_random(rows: int) -> list[Mask]:
    """A fifth of the rows, once per seed (one seed for large tables); empty for a single row."""
    if rows < 2:
        return []
    seeds = RANDOM_SEEDS if rows < LARGE_TABLE_ROWS else RANDOM_SEEDS[:1]
    return [random_rows(rows, max(1, round(HELD_OUT_SHARE * rows)), seed) for seed in seeds]


def random_rows(rows: int, count: int, seed: int = 0) -> Mask:
    """A mask of `count` of the rows, drawn at random."""
    mask = np.zeros(rows, dtype=np.bool_)
    mask[np.random.default_rng(seed).permutation(rows)[:count]] = True
    return mask


def hold_outs(data: TrainingData, family: str) -> dict[str, Mask]:
    """One held-out mask [rows] per split; `family` is gemm, attention, moe, nccl, or '' for any other kind of table.

    A family's tables hold out named widths, head counts, rank counts or models as unseen shapes, and sizes above a threshold
    for extrapolation. Without those values, and for any other table, the first fold of `by_shape` and `largest` are held
    out. A split that would leave no rows on one side is omitted.
    """
    masks = {
        "random": at_random(len(data))[:1],
        "shape": [_unseen_values(data, family), *by_shape(data.shape)[:1]],
        "extrapolation": [_above_threshold(data, family), largest(data.shape, data.terms)],
    }
    usable = {split: [mask for mask in choices if mask.any() and not mask.all()] for split, choices in masks.items()}
    return {split: choices[0] for split, choices in usable.items() if choices}


def _unseen_values(data: TrainingData, family: str) -> Mask:
    if family == "moe":
        models = row_digests(np.column_stack([_column(data, field) for field in MODEL_FIELDS]))
        distinct = np.unique(models)
        count = max(1, round(HELD_OUT_SHARE * len(distinct)))
        return np.isin(models, np.random.default_rng(0).permutation(distinct)[:count])
    held_out = np.zeros(len(data), dtype=np.bool_)
    for field, values in UNSEEN_VALUES.get(family, {}).items():
        held_out |= np.isin(_column(data, field), values)
    return held_out


def _above_threshold(data: TrainingData, family: str) -> Mask:
    held_out = np.zeros(len(data), dtype=np.bool_)
    for field, threshold in EXTRAPOLATION_THRESHOLDS.get(family, {}).items():
        held_out |= _column(data, field) >= threshold
    return held_out


def _column(data: TrainingData, field: str) -> Floats:
    column: Floats = data.codes[:, list(data.fields).index(field)]
    return column
