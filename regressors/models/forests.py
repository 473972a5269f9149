"""Random forests and extra trees grown tree by tree: scikit-learn's own ensembles, to the byte, in a tenth of their time.

On few rows an ensemble of scikit-learn spends nearly all of its time on checks of its inputs, its settings and the weights of its rows,
for every tree again. Here its builders of trees are given what its estimators give them. They are private to scikit-learn: a release that
is not known to build the same trees by them fits its public estimators, which takes longer.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from importlib.metadata import version
from typing import Any

import numpy as np

from regressors.features.arrays import Floats
from regressors.models.capacity import RANDOM_STATE

KNOWN_RELEASES = ("1.4", "1.5", "1.6", "1.7", "1.8", "1.9")
"""Releases of scikit-learn whose builders were seen to grow the trees of its estimators: 1.4.2, 1.5.2, 1.6.1, 1.7.2, 1.8.0, 1.9.0 and
1.9.1 with the test of `tests/regressors/models/test_trees.py`. Others of the same two numbers are taken to be alike."""
LARGEST_SEED = np.iinfo(np.int32).max
ANY_DEPTH = np.iinfo(np.int32).max
"""The depth that scikit-learn's estimators give its builders where none is set."""
DRAWS_KEPT = 16
"""Draws that are kept: the folds of one table ask for the same few."""


def random_forest(inputs: Floats, target: Floats, *, trees: int, drawn_rows: int, **settings: Any) -> list[Any]:
    """The fitted trees (`sklearn.tree._tree.Tree`) of a RandomForestRegressor whose trees draw `drawn_rows` rows each.

    Inputs [rows, features], target [rows]; `settings` are those of `_grown`.
    """
    if not builders_are_known():
        from sklearn.ensemble import RandomForestRegressor

        return _fitted(RandomForestRegressor, inputs, target, trees, settings | {"max_samples": drawn_rows})
    from sklearn.tree._splitter import BestSplitter

    return _grown(
        BestSplitter,
        inputs,
        target,
        zip(_seeds(trees), _draws(trees, len(inputs), drawn_rows), strict=True),
        **settings,
    )


def extra_trees(inputs: Floats, target: Floats, *, trees: int, **settings: Any) -> list[Any]:
    """The fitted trees of an ExtraTreesRegressor; `settings` are those of `_grown`."""
    if not builders_are_known():
        from sklearn.ensemble import ExtraTreesRegressor

        return _fitted(ExtraTreesRegressor, inputs, target, trees, settings)
    from sklearn.tree._splitter import RandomSplitter

    return _grown(RandomSplitter, inputs, target, ((seed, None) for seed in _seeds(trees)), **settings)


@cache
def builders_are_known() -> bool:
    """Whether this release of scikit-learn is one of KNOWN_RELEASES."""
    return ".".join(version("scikit-learn").split(".")[:2]) in KNOWN_RELEASES


def _fitted(estimator: type[Any], inputs: Floats, target: Floats, trees: int, settings: Mapping[str, Any]) -> list[Any]:
    forest = estimator(n_estimators=trees, random_state=RANDOM_STATE, **settings).fit(inputs, target)
    return [member.tree_ for member in forest.estimators_]


@lru_cache(DRAWS_KEPT)
def _seeds(trees: int) -> Sequence[int]:
    # one call a tree, as scikit-learn draws them
    random = np.random.RandomState(RANDOM_STATE)
    return [int(random.randint(LARGEST_SEED)) for _ in range(trees)]


@lru_cache(DRAWS_KEPT)
def _draws(trees: int, rows: int, drawn_rows: int) -> Floats:
    """Draws of each row by each tree [trees, rows]."""
    random = np.random.RandomState()
    draws = np.empty((trees, rows))
    for tree, seed in enumerate(_seeds(trees)):
        random.seed(seed)
        draws[tree] = np.bincount(random.randint(0, rows, drawn_rows), minlength=rows)
    return draws


def _grown(
    splitter: type[Any],
    inputs: Floats,
    target: Floats,
    seeds_and_weights: Iterable[tuple[int, Floats | None]],
    *,
    max_leaf_nodes: int,
    max_features: float = 1.0,
    min_samples_leaf: int = 1,
) -> list[Any]:
    """A tree for each seed and the weights of its rows, by settings named and meant as scikit-learn's."""
    from sklearn.tree._criterion import MSE
    from sklearn.tree._tree import BestFirstTreeBuilder, Tree

    rows, columns = inputs.shape
    features, wanted = inputs.astype(np.float32), np.ascontiguousarray(target, dtype=np.float64).reshape(-1, 1)
    criterion, one_class = MSE(1, rows), np.ones(1, dtype=np.intp)
    tried = max(1, int(max_features * columns))
    # a tree has no more leaves than rows, and memory is set aside for as many as it may have
    leaves = max(2, min(max_leaf_nodes, rows))
    # seeded anew for each tree: one that is made anew reads the entropy of the system first, which takes longer than a small tree
    random = np.random.RandomState()
    split = splitter(criterion, tried, min_samples_leaf, 0.0, random, None)
    builder = BestFirstTreeBuilder(split, 2 * min_samples_leaf, min_samples_leaf, 0.0, ANY_DEPTH, leaves, 0.0)
    grown = []
    for seed, weights in seeds_and_weights:
        random.seed(seed)
        tree = Tree(columns, one_class, 1)
        builder.build(tree, features, wanted, weights)
        grown.append(tree)
    return grown
