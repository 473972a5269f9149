"""Which rows a judged model does not see: some at random, some shapes, the largest.

Published tables are held out as their figures elsewhere were made, so that these compare: whole widths, head counts, rank
counts and models for the unseen shapes, sizes from a threshold on for extrapolation.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from regressors.dataset.splits import HELD_OUT_SHARE, at_random, by_shape, largest
from regressors.dataset.training_data import TrainingData
from regressors.features.arrays import Floats, Mask
from regressors.features.digests import row_digests

SPLITS = ("random", "shape", "extrapolation")
UNSEEN_VALUES: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    "gemm": {"n": (768, 2560, 5120, 12288), "k": (768, 2560, 5120, 12288)},
    "attention": {"heads": (12, 20, 40)},
    "nccl": {"ranks": (4,)},
}
MODEL_FIELDS = ("hidden", "inter", "topk", "experts")
THRESHOLDS: Mapping[str, Mapping[str, int]] = {
    "gemm": {"n": 51_200, "k": 51_200},
    "attention": {"seq_len": 12_000},
    "moe": {"tokens": 12_000},
    "nccl": {"size_bytes": 128 * 2**20},
}


def hold_outs(data: TrainingData, family: str) -> dict[str, Mask]:
    """The rows of each split [rows]; `family` is gemm, attention, moe, nccl, or '' for a table of any other kind.

    Where a family's values are not in the table, and for any other, a fold of distinct shapes is unseen, and the fifth
    with the most work is what is extrapolated to. A split that would leave nothing on either side is left out.
    """
    folds = by_shape(data.shape)
    masks = {
        "random": at_random(len(data))[:1],
        "shape": [_unseen(data, family), *folds[:1]],
        "extrapolation": [_beyond(data, family), largest(data.shape, data.terms)],
    }
    usable = {split: [mask for mask in choices if mask.any() and not mask.all()] for split, choices in masks.items()}
    return {split: choices[0] for split, choices in usable.items() if choices}


def _unseen(data: TrainingData, family: str) -> Mask:
    if family == "moe":
        models = row_digests(np.column_stack([_column(data, field) for field in MODEL_FIELDS]))
        distinct = np.unique(models)
        count = max(1, round(HELD_OUT_SHARE * len(distinct)))
        return np.isin(models, np.random.default_rng(0).permutation(distinct)[:count])
    held = np.zeros(len(data), dtype=np.bool_)
    for field, values in UNSEEN_VALUES.get(family, {}).items():
        held |= np.isin(_column(data, field), values)
    return held


def _beyond(data: TrainingData, family: str) -> Mask:
    held = np.zeros(len(data), dtype=np.bool_)
    for field, threshold in THRESHOLDS.get(family, {}).items():
        held |= _column(data, field) >= threshold
    return held


def _column(data: TrainingData, field: str) -> Floats:
    column: Floats = data.codes[:, list(data.fields).index(field)]
    return column
