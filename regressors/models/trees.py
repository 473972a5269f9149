"""Tree ensembles as flat arrays: exported from scikit-learn and XGBoost, evaluated with numpy alone.

Nodes of all trees are stored level by level, so the roots come first and a node's right child follows its left one. A leaf
points to itself with an infinite threshold, so every row takes `depth` steps without a branch.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from regressors.features.arrays import Floats
from sampling.files.machine_code import compiled, numba_is_there

if TYPE_CHECKING:
    import xgboost

Array: TypeAlias = NDArray[Any]
MANY_WALKS = 2**17
"""Walks of one row through one tree from which on importing numba costs less than numpy, level by level, does."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FlatTrees:
    """offset + scale · Σ leaf values; a row goes left where x[feature] <= threshold, both float32."""

    trees: int
    depth: int
    offset: float
    scale: float
    feature: NDArray[np.int16]
    threshold: NDArray[np.float32]
    left: NDArray[np.int32]
    value: NDArray[np.float32]

    def predict(self, inputs: Floats) -> Floats:
        """Rows [rows, features] → [rows]."""
        rows = inputs.astype(np.float32)
        if self.trees * len(rows) >= MANY_WALKS and numba_is_there():
            arrays = (self.feature, self.threshold, self.left, self.value)
            walked = np.zeros(len(rows))
            compiled(_walk)(walked, rows, self.trees, *arrays)
            return self.offset + self.scale * walked
        # tree after tree, as _walk adds: `sum` adds in another order for one row than for many
        total: Floats = np.cumsum(self.of_members(inputs), axis=0, dtype=np.float64)[-1]
        return self.offset + self.scale * total

    def of_members(self, inputs: Floats) -> NDArray[np.float32]:
        """Each tree's leaf value [trees, rows], unscaled: in a forest, the prediction of each tree alone."""
        rows = inputs.astype(np.float32)
        row = np.arange(len(rows))
        node = np.repeat(np.arange(self.trees)[:, None], len(rows), axis=1)
        for _ in range(self.depth):
            goes_right = rows[row, self.feature[node]] > self.threshold[node]
            node = np.add(self.left[node], goes_right, dtype=node.dtype)
        return self.value[node]


def _walk(total: Any, rows: Any, trees: int, feature: Any, threshold: Any, left: Any, value: Any) -> None:
    """Σ leaf values [rows] for inputs [rows, features], tree by tree, so that a tree's nodes stay in the cache."""
    for tree in range(trees):
        for row in range(len(rows)):
            node = tree
            while left[node] != node:
                node = left[node] + (rows[row, feature[node]] > threshold[node])
            total[row] += value[node]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Tree:
    """One library tree: child indices (-1 at a leaf), split feature, threshold for `<=`, value at a leaf."""

    left: Array
    right: Array
    feature: Array
    threshold: NDArray[np.float32]
    value: Array


def from_forest(grown: Sequence[Any]) -> FlatTrees:
    """Export the fitted trees (`tree_`) of a scikit-learn forest or extra-trees regressor of one output."""
    trees = [
        _Tree(
            left=tree.children_left,
            right=tree.children_right,
            feature=tree.feature,
            threshold=_largest_float32_not_above(tree.threshold),
            value=tree.value.reshape(-1),
        )
        for tree in grown
    ]
    return _flatten(trees, offset=0.0, scale=1 / len(trees))


def from_xgboost(booster: xgboost.Booster) -> FlatTrees:
    """Export a regression booster with an identity link and numeric features."""
    learner = json.loads(booster.save_raw("json"))["learner"]
    trees = []
    for tree in learner["gradient_booster"]["model"]["trees"]:
        split = np.asarray(tree["split_conditions"], dtype=np.float32)
        trees.append(
            _Tree(
                left=np.asarray(tree["left_children"]),
                right=np.asarray(tree["right_children"]),
                feature=np.asarray(tree["split_indices"]),
                # XGBoost goes left where x < split: for float32 that is x <= the float32 before split
                threshold=np.nextafter(split, np.float32(-np.inf)),
                value=split,
            )
        )
    # version 3 writes one base score a target, as "[5E-1]"
    offset = float(learner["learner_model_param"]["base_score"].strip("[]"))
    return _flatten(trees, offset=offset, scale=1.0)


def _largest_float32_not_above(threshold: Array) -> NDArray[np.float32]:
    """scikit-learn compares float32 inputs with float64 thresholds; this rounding keeps every comparison."""
    rounded = threshold.astype(np.float32)
    return np.where(rounded > threshold, np.nextafter(rounded, np.float32(-np.inf)), rounded)


def _flatten(trees: Sequence[_Tree], *, offset: float, scale: float) -> FlatTrees:
    starts = np.cumsum([0, *(len(tree.left) for tree in trees)])
    left = np.concatenate([_shifted(tree.left, start) for tree, start in zip(trees, starts, strict=False)])
    right = np.concatenate([_shifted(tree.right, start) for tree, start in zip(trees, starts, strict=False)])
    levels = [starts[:-1]]
    while len(parents := levels[-1][left[levels[-1]] >= 0]):
        levels.append(np.stack([left[parents], right[parents]], axis=1).reshape(-1))
    order = np.concatenate(levels)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    leaf = left[order] < 0
    feature = np.concatenate([tree.feature for tree in trees])[order]
    threshold = np.concatenate([tree.threshold for tree in trees])[order]
    value = np.concatenate([tree.value for tree in trees])[order]
    return FlatTrees(
        trees=len(trees),
        depth=len(levels) - 1,
        offset=offset,
        scale=scale,
        feature=np.where(leaf, 0, feature).astype(np.int16),
        threshold=np.where(leaf, np.float32(np.inf), threshold).astype(np.float32),
        left=np.where(leaf, np.arange(len(order)), place[left[order]]).astype(np.int32),
        value=np.where(leaf, value, 0.0).astype(np.float32),
    )


def _shifted(children: Array, start: int) -> Array:
    return np.where(children >= 0, children + start, -1)
