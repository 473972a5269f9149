"""Chooses the shapes to time next: space-filling first, then where a committee of models disagrees.

A batch is chosen greedily. Every untimed shape belongs to the group of its nearest timed or already chosen shape; from the
group with the most left to learn, the shape with the most joins the batch, and so on. The amount left to learn at a shape
is its squared distance to the nearest known one times the committee's disagreement. The groups are LCMD's (largest cluster, maximum
distance: Holzmüller, Zaverkin, Kästner & Steinwart, JMLR 2023): unlike the single farthest or most disputed shape, they
keep the batch where shapes are many, and none next to another. The disagreement is query by committee (Seung, Opper &
Sompolinsky, COLT 1992), the committee extra-trees of the correction to the roofline. The distance is that of core-set
selection (Sener & Savarese, ICLR 2018), in features weighed by how much the committee's splits on them explain.

On the public GEMM tables of three devices the most disputed shapes alone do worse than random ones, and farthest points
alone no better; of a dozen rules this one was ahead over all tables, by little. It saves a third of the rows, not half
(`python -m regressors.accuracy.rows_against_error`).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regressors.features.arrays import Floats
from regressors.fitting.fit import MIN_SHAPES_TO_LEARN
from regressors.models.capacity import RANDOM_STATE
from regressors.models.domain import learn_domain
from regressors.models.smooth import squared_distances
from regressors.models.time_model import correction_inputs, fit_roofline
from regressors.models.trees import from_forest
from regressors.uncertainty.intervals import UNKNOWN_HALF_WIDTH

MEMBERS = 60
"""Trees of the committee: as many as the product's ensemble has for few rows."""
FIRST_ROWS = 64
"""Rows that fill the space before a committee is asked."""
GROWTH = 0.25
"""Rows chosen before the committee is trained again, as a share of the rows so far."""
IMPORTANCE_POWER = 0.25
"""Exponent of a feature's share of the explained variance as its weight: at 1 only the largest would count, at 0 all alike."""
BLOCK = 256

Places = NDArray[np.intp]


@dataclass(frozen=True, kw_only=True, slots=True)
class Timed:
    """Rows that were timed: terms [rows, terms], features [rows, features], µs [rows]."""

    terms: Floats
    features: Floats
    time_us: Floats

    def __len__(self) -> int:
        return len(self.time_us)


@dataclass(frozen=True, kw_only=True, slots=True)
class Untimed:
    """Shapes that were not timed: terms, features, and the seconds that timing each would cost [shapes]."""

    terms: Floats
    features: Floats
    cost_s: Floats

    def __len__(self) -> int:
        return len(self.cost_s)


@dataclass(frozen=True, kw_only=True, slots=True)
class Opinion:
    """A committee's view of rows: its members' spread of log time [rows], and the rows' positions [rows, dimensions]."""

    disagreement: Floats
    position: Floats


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """Places of the shapes to time next, the most useful first, and by how much the committee disagrees on average, in log
    time, which says how much this kind of call needs them."""

    places: Places
    disagreement: float


UNKNOWN = UNKNOWN_HALF_WIDTH
"""The disagreement, in log time, of a committee that has too few rows to be asked."""


def batch_rows(timed: int) -> int:
    """Number of rows to time before the next choice, after `timed` rows."""
    return FIRST_ROWS - timed if timed < FIRST_ROWS else max(1, round(GROWTH * timed))


def fill_space(features: Floats, count: int) -> Places:
    """Places of `count` rows of features [rows, features] that cover the space, as does any prefix of them.

    They are the farthest points within the largest group, from the middle on; farthest points alone would be corners.
    """
    deviation = features.std(axis=0)
    varies = deviation > 1e-9 * np.maximum(1.0, np.abs(features).max(axis=0, initial=0.0))
    rows = (features - features.mean(axis=0)) / np.where(varies, deviation, np.inf)
    middle = int((rows**2).sum(axis=1).argmin())
    worth = np.ones(len(rows))
    worth[middle] = 0.0
    others = most_to_learn(rows[[middle]], rows, worth, min(count, len(rows)) - 1)
    return np.concatenate([[middle], others]).astype(np.intp)


def next_rows(timed: Timed, untimed: Untimed, count: int, named: Untimed | None = None) -> Choice:
    """The `count` of `untimed` to time next.

    First come those nearest to shapes that runs need (`named`) and that lie outside the domain of the timed rows.
    """
    if len(timed) < MIN_SHAPES_TO_LEARN:
        return Choice(places=fill_space(untimed.features, count), disagreement=UNKNOWN)
    wanted = (
        nearest_to_extrapolated(timed, untimed, named) if named is not None and len(named) else np.zeros(0, np.intp)
    )
    opinion = ask_committee(timed, untimed)
    disagreement, position = opinion.disagreement[len(timed) :], opinion.position[len(timed) :]
    # square root: value per row would spend the budget on a few large shapes, value per second would never time them
    value = disagreement / np.sqrt(untimed.cost_s)
    value = np.maximum(value, 1e-12)
    value[wanted] = 0.0
    known = np.concatenate([opinion.position[: len(timed)], position[wanted]])
    rest = most_to_learn(known, position, value, min(count, len(untimed)) - len(wanted))
    return Choice(places=np.concatenate([wanted, rest])[:count], disagreement=float(disagreement.mean()))


def nearest_to_extrapolated(timed: Timed, untimed: Untimed, named: Untimed) -> Places:
    """The untimed shape nearest to each named one that lies outside the timed rows' domain."""
    base = fit_roofline(timed.terms, timed.time_us)
    domain = learn_domain(timed.terms, timed.features, base.time_us(timed.terms))
    outside = named.features[~domain.contains(named.terms, named.features)]
    if not len(outside) or not len(untimed):
        return np.zeros(0, dtype=np.intp)
    everything = np.concatenate([timed.features, untimed.features])
    deviation = everything.std(axis=0)
    scale = np.where(deviation > 0, 1 / np.where(deviation > 0, deviation, 1.0), 1.0)
    nearest = squared_distances(outside * scale, untimed.features * scale).argmin(axis=1)
    return np.asarray(list(dict.fromkeys(nearest.tolist())), dtype=np.intp)


def ask_committee(timed: Timed, untimed: Untimed) -> Opinion:
    """The opinion on all rows, timed ones first."""
    from sklearn.ensemble import ExtraTreesRegressor

    base = fit_roofline(timed.terms, timed.time_us)
    terms, features = (np.concatenate([getattr(timed, part), getattr(untimed, part)]) for part in ("terms", "features"))
    inputs = correction_inputs(base, terms, features)
    ratio = np.log(timed.time_us / base.time_us(timed.terms))
    forest = ExtraTreesRegressor(n_estimators=MEMBERS, random_state=RANDOM_STATE, n_jobs=1).fit(
        inputs[: len(timed)], ratio
    )
    deviation = inputs.std(axis=0)
    varies = deviation > 1e-9 * np.maximum(1.0, np.abs(inputs).max(axis=0))
    weight = forest.feature_importances_**IMPORTANCE_POWER
    return Opinion(
        disagreement=from_forest([member.tree_ for member in forest.estimators_]).of_members(inputs).std(axis=0),
        position=inputs[:, varies] / deviation[varies] * weight[varies],
    )


def most_to_learn(known: Floats, shapes: Floats, value: Floats, count: int) -> Places:
    """Greedy groups: places in `shapes` [shapes, dimensions] of `count` of them, given those `known` [rows, dimensions].

    What is left to learn at a shape is `value` [shapes] times its squared distance to the nearest known or chosen one; a
    shape of value 0 is never chosen.
    """
    group, gap = _nearest(known, shapes)
    squares = (shapes**2).sum(axis=1)
    barred = value <= 0
    chosen: list[int] = []
    for number in range(len(known), len(known) + min(count, int((~barred).sum()))):
        left = np.where(barred, -1.0, gap * value)
        of_group = np.bincount(group, weights=np.maximum(left, 0.0), minlength=number)
        pick = int(np.where(group == of_group.argmax(), left, -1.0).argmax())
        if left[pick] < 0:
            pick = int(left.argmax())
        chosen.append(pick)
        barred[pick] = True
        distance = np.maximum(squares + squares[pick] - 2 * (shapes @ shapes[pick]), 0.0)
        group = np.where(distance < gap, number, group)
        gap = np.minimum(gap, distance)
    return np.asarray(chosen, dtype=np.intp)


def _nearest(known: Floats, shapes: Floats) -> tuple[Places, Floats]:
    """Number of the nearest known row of each shape, and the squared distance to it."""
    group, gap = np.zeros(len(shapes), dtype=np.intp), np.full(len(shapes), np.inf)
    for start in range(0, len(known), BLOCK):
        squares = squared_distances(shapes, known[start : start + BLOCK])
        nearest = squares.argmin(axis=1)
        distance = squares[np.arange(len(shapes)), nearest]
        group = np.where(distance < gap, start + nearest, group)
        gap = np.minimum(gap, distance)
    return group, gap
