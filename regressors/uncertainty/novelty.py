"""What is new about a call: sizes and kinds that no sample had, and how much wider that makes its interval.

A random row left out says how well a model fills in between; it says nothing of a width, a head count or a model that was
never sampled. So each field of the call is held out in turn, its values in between and its largest, and the errors on them
are kept as the field's own half-widths.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from regressors.features.arrays import Floats, Mask
from regressors.features.digests import row_digests
from regressors.uncertainty.intervals import UNKNOWN_HALF_WIDTH, half_width

SIZES = frozenset(
    {"batch", "seq_len", "tokens", "rows", "m", "matrices", "size_bytes", "parameters", "tensors", "layers"}
)
"""Fields that change with the batch: any value between two sampled ones is as good as sampled."""
PLAN = frozenset({"tp", "sp", "ep", "dp", "cp", "ranks", "ranks_per_node", "group_nodes", "groups"})
"""Fields that a plan sets. The others are the model's: its widths, heads, experts."""
FEWEST_ROWS = 200
"""Below, a fifth of a field's values holds too few rows to tell an error by."""
FEWEST_VALUES = 3
"""Of a field, to hold some out and have others left to learn from."""
MOST_ROWS = 3000
"""A fit that only asks how far an unseen value is off needs no more."""

Errors: TypeAlias = Callable[[Mask, Mask], Floats]
"""Log errors on the rows of the second mask, of a model fitted on those of the first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Novelty:
    """Half-widths of log time for what is new, a row a field of the call.

    `values` are the sampled values of all fields, field i's from `starts[i]` to `starts[i + 1]`. A value among them is not
    new. Between the least and the greatest, `between` applies; outside, `beyond`, which grows with the root of the
    distance in octaves over `octaves`, those at which it was learnt. `models` are digests of the sampled combinations of
    the `of_model` fields; a new one costs `model`.
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
        """Codes [calls, fields] → [calls]; 0 where nothing is new."""
        widths = np.where(np.isin(row_digests(called[:, self.of_model]), self.models), 0.0, self.model)
        for field in range(len(self.is_number)):
            widths = np.maximum(widths, self._of_field(field, called[:, field]))
        return widths

    def beyond_range(self, called: Floats) -> Mask:
        """Codes [calls, fields] → whether a number lies outside all sampled ones, or a word is none of them [calls]."""
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
    """Doublings from `low` up to `high`, 0 where it is no higher."""
    return np.maximum(np.log2((np.asarray(high) + 1.0) / (np.asarray(low) + 1.0)), 0.0)


def is_new(fields: Sequence[str], known: Floats, called: Floats) -> Mask:
    """Whether a value of a field that is no size, or the combination of the model's, is not among the known [calls]."""
    if len(known) < FEWEST_ROWS:
        return np.zeros(len(called), dtype=np.bool_)
    of_model = np.array([name not in SIZES | PLAN for name in fields], dtype=np.bool_)
    new = ~np.isin(row_digests(called[:, of_model]), row_digests(known[:, of_model]))
    for field, name in enumerate(fields):
        if name not in SIZES:
            new |= ~np.isin(called[:, field], known[:, field])
    return new


def learn_novelty(fields: Sequence[str], is_number: Sequence[bool], called: Floats, errors: Errors) -> Novelty:
    """Hold out each field's inner and largest values, and some of the models, in turn; `called` is [rows, fields]."""
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
    """Every third of the values between the least and the greatest, none next to another."""
    inner = values[1:-1]
    return inner[len(inner) // 2 % 3 :: 3]


def _width_of(held: Mask, errors: Errors) -> float:
    """The half-width of a model that saw none of the rows held out; UNKNOWN_HALF_WIDTH where that cannot be tried."""
    if not held.any() or np.count_nonzero(~held) < FEWEST_ROWS // 2:
        return UNKNOWN_HALF_WIDTH
    return half_width(errors(_thinned(~held), _thinned(held)))


def _thinned(rows: Mask) -> Mask:
    """At most MOST_ROWS of the rows, evenly taken."""
    places = np.flatnonzero(rows)
    kept = np.zeros(len(rows), dtype=np.bool_)
    kept[places[:: -(-len(places) // MOST_ROWS)]] = True
    return kept
