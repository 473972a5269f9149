"""90 % intervals from held-out errors, inside the domain of the samples and beyond it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from regressors.features.arrays import Floats, Mask
from regressors.features.digests import row_digests

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


# Novelty: field values of a call that no sample had, and how much they widen its interval.
#
# A random held-out row tests interpolation; it says nothing about a width, a head count or a model that was never sampled. So
# each field is held out in turn, first values in between, then the largest, and the errors become the field's half-widths.

SIZES = frozenset(
    {"batch", "seq_len", "tokens", "rows", "m", "matrices", "size_bytes", "parameters", "tensors", "layers"}
)
"""Fields that vary with the batch: a value between two sampled ones counts as sampled."""
PLAN = frozenset({"tp", "sp", "ep", "dp", "cp", "ranks", "ranks_per_node", "group_nodes", "groups"})
"""Fields that the parallel plan sets. All others describe the model: widths, heads, experts."""
FEWEST_ROWS = 200
"""Rows below which a fifth of a field's values has too few rows to estimate an error from."""
FEWEST_VALUES = 3
"""Distinct values that a field needs for some to be held out and others to be fitted to."""
MOST_ROWS = 3000
"""Largest number of rows for fits that only estimate the error on unseen values."""

Errors: TypeAlias = Callable[[Mask, Mask], Floats]
"""Log errors on the rows of the second mask of a model fitted to the rows of the first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Novelty:
    """Half-widths of log time for values that were not sampled, one entry per field of the call.

    `values` are the sampled values of all fields, those of field i from `starts[i]` to `starts[i + 1]`. For a new value
    between the least and the greatest, `between` applies; outside, `beyond`, which grows with the square root of the distance
    over `octaves`, the distance at which it was estimated. `models` are digests of the sampled combinations of the
    `of_model` fields; a new combination has at least the half-width `model`.
    """

    values: Floats
    starts: NDArray[np.int64]
    is_number: NDArray[np.bool_]
    between: Floats
    beyond: Floats
    octaves: Floats
    of_model: NDArray[np.bool_]
    models: NDArray[np.uint64]
    model: float

    def half_width(self, called: Floats) -> Floats:
        """Codes [calls, fields] → [calls]; 0 if nothing is new."""
        widths = np.where(np.isin(row_digests(called[:, self.of_model]), self.models), 0.0, self.model)
        for field in range(len(self.is_number)):
            widths = np.maximum(widths, self._of_field(field, called[:, field]))
        return widths

    def beyond_range(self, called: Floats) -> Mask:
        """Codes [calls, fields] → whether a number lies outside the sampled range, or a string was not sampled [calls]."""
        outside = np.zeros(len(called), dtype=np.bool_)
        for field in range(len(self.is_number)):
            known, column = self._values(field), called[:, field]
            numbers = (column < known[0]) | (column > known[-1])
            outside |= numbers if self.is_number[field] else ~np.isin(column, known)
        return outside

    def _values(self, field: int) -> Floats:
        return self.values[self.starts[field] : self.starts[field + 1]]

    def _of_field(self, field: int, column: Floats) -> Floats:
        known = self._values(field)
        if not self.is_number[field]:
            return np.where(np.isin(column, known), 0.0, self.between[field])
        distance = np.maximum(octaves_between(known[-1], column), octaves_between(column, known[0]))
        growth = np.sqrt(np.maximum(1.0, distance / self.octaves[field]))
        width: Floats = np.where(distance > 0, self.beyond[field] * growth, self.between[field])
        return np.where(np.isin(column, known), 0.0, width)


def octaves_between(low: Floats | float, high: Floats | float) -> Floats:
    """Doublings from `low` up to `high`; 0 if `high` is not higher."""
    return np.maximum(np.log2((np.asarray(high) + 1.0) / (np.asarray(low) + 1.0)), 0.0)


def is_new(fields: Sequence[str], known: Floats, called: Floats) -> Mask:
    """Whether a call has a value of a field not in SIZES, or a combination of model fields, that is not known [calls]."""
    if len(known) < FEWEST_ROWS:
        return np.zeros(len(called), dtype=np.bool_)
    of_model = np.array([name not in SIZES | PLAN for name in fields], dtype=np.bool_)
    new = ~np.isin(row_digests(called[:, of_model]), row_digests(known[:, of_model]))
    for field, name in enumerate(fields):
        if name not in SIZES:
            new |= ~np.isin(called[:, field], known[:, field])
    return new


def learn_novelty(fields: Sequence[str], is_number: Sequence[bool], called: Floats, errors: Errors) -> Novelty:
    """Hold out inner values and the largest values of each field, and some of the models, in turn; `called`: [rows, fields]."""
    if len(called) < FEWEST_ROWS:
        fields, is_number, called = (), (), called[:, :0]
    known = [np.unique(called[:, field]) for field in range(len(fields))]
    between, beyond, octaves = (np.full(len(fields), value) for value in (0.0, UNKNOWN_HALF_WIDTH, 1.0))
    for field, name in enumerate(fields):
        column, values = called[:, field], known[field]
        if not is_number[field]:
            between[field] = UNKNOWN_HALF_WIDTH
            continue
        if name not in SIZES:
            between[field] = _width_of(np.isin(column, _inner(values)), errors)
        if len(values) >= FEWEST_VALUES:
            top = column >= values[-max(1, len(values) // 5)]
            beyond[field] = max(between[field], _width_of(top, errors))
            octaves[field] = np.median(octaves_between(column[~top].max(), column[top]))
    of_model = np.array([name not in SIZES | PLAN for name in fields], dtype=np.bool_)
    models = row_digests(called[:, of_model])
    distinct = np.unique(models)
    return Novelty(
        values=np.concatenate([np.zeros(0), *known]),
        starts=np.cumsum([0, *(len(values) for values in known)]),
        is_number=np.array(is_number, dtype=np.bool_),
        between=between,
        beyond=beyond,
        octaves=octaves,
        of_model=of_model,
        models=distinct,
        model=_width_of(np.isin(models, _inner(distinct)), errors) if fields else 0.0,
    )


def _inner(values: NDArray[np.generic]) -> NDArray[np.generic]:
    """Every third value strictly between the least and the greatest."""
    inner = values[1:-1]
    return inner[len(inner) // 2 % 3 :: 3]


def _width_of(held_out: Mask, errors: Errors) -> float:
    """Half-width of a model fitted without the held-out rows; UNKNOWN_HALF_WIDTH if either side has too few rows."""
    if not held_out.any() or np.count_nonzero(~held_out) < FEWEST_ROWS // 2:
        return UNKNOWN_HALF_WIDTH
    return half_width(errors(_thinned(~held_out), _thinned(held_out)))


def _thinned(rows: Mask) -> Mask:
    """Evenly spaced rows, at most MOST_ROWS."""
    places = np.flatnonzero(rows)
    kept = np.zeros(len(rows), dtype=np.bool_)
    kept[places[:: -(-len(places) // MOST_ROWS)]] = True
    return kept
