"""The named columns of one model, and calls as matrices of them."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

import numpy as np

from regressors.features.arrays import Floats
from regressors.features.pricing import Priced
from sampling.errors import SamplesError

LENT = "lent"
"""Name of the term that is the donor's time: see `regressors.dataset.donor`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Schema:
    """The columns of one model: roofline terms (µs at peak) and features, each in a fixed order.

    `absent` maps the columns that only some calls have to their default: 0 µs for a term, the least sampled value for a
    feature (a layer on one rank has no communication time). For kinds such as `kernel=triton`, the default is the kind
    sampled most; a kind that was never sampled has no column.
    """

    terms: tuple[str, ...]
    features: tuple[str, ...]
    absent: Mapping[str, float]

    @property
    def digest(self) -> str:
        """Changes whenever a column is added, removed or renamed."""
        names = json.dumps([self.terms, self.features])
        return hashlib.sha256(names.encode()).hexdigest()[:16]

    def has_terms_of(self, priced: Priced) -> bool:
        """Whether calls with exactly these roofline terms were sampled: a layer has more terms on several ranks than on one."""
        return not self._faults(tuple(name for name in self.terms if name != LENT), priced.terms)

    def matrices(self, priced: Sequence[Priced]) -> tuple[Floats, Floats]:
        """Terms [calls, terms] and features [calls, features].

        Raises SamplesError for columns other than those of the training samples.
        """
        for terms, features in {(tuple(row.terms), tuple(row.features)) for row in priced}:
            faults = self._faults(self.terms, terms) + self._faults(self.features, features)
            if faults:
                raise SamplesError(f"columns {faults} are not those that the model was fitted on")
        kinds = {name: kind_of(name) for name in self.features if kind_of(name)}
        return (
            self._matrix(self.terms, [row.terms for row in priced]),
            self._matrix(self.features, [self._with_kinds(row.features, kinds) for row in priced]),
        )

    def _with_kinds(self, features: Mapping[str, float], kinds: Mapping[str, str]) -> Mapping[str, float]:
        """The features with 0 for the other values of each kind that the call names."""
        if not kinds:
            return features
        said = {kind_of(name) for name in features}
        return {name: 0.0 for name, kind in kinds.items() if kind in said} | dict(features)

    def _faults(self, known: tuple[str, ...], given: Iterable[str]) -> list[str]:
        differing = (name for name in set(given) ^ set(known) if not (name in known and name in self.absent))
        return sorted(name for name in differing if not kind_of(name))

    def _matrix(self, names: tuple[str, ...], rows: Sequence[Mapping[str, float]]) -> Floats:
        whole = [name for name in names if name not in self.absent]
        if len(whole) == len(names) > 1:
            return np.array(list(map(itemgetter(*names), rows)), dtype=np.float64).reshape(len(rows), len(names))
        values = [[row[name] if name in row else self.absent[name] for name in names] for row in rows]
        return np.asarray(values, dtype=np.float64).reshape(len(values), len(names))


def kind_of(feature: str) -> str:
    """`kernel` of the column `kernel=triton`; '' of a column of numbers."""
    kind, is_kind, _ = feature.partition("=")
    return kind if is_kind else ""


def schema_of(priced: Sequence[Priced]) -> Schema:
    """The union of the calls' columns, sorted by name."""
    terms, features = [row.terms for row in priced], [row.features for row in priced]
    some_terms = {name: 0.0 for name in _union(terms) if any(name not in row for row in terms)}
    some_features = {
        name: min(row[name] for row in features if name in row)
        for name in _union(features)
        if not kind_of(name) and any(name not in row for row in features)
    } | _usual_kinds(features)
    return Schema(terms=_union(terms), features=_union(features), absent=some_terms | some_features)


def _usual_kinds(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """1 for the most frequent column of each kind, 0 for the others."""
    counts = Counter(name for row in rows for name in row if kind_of(name))
    usual = {kind_of(name): name for name, _ in reversed(counts.most_common())}
    return {name: float(usual[kind_of(name)] == name) for name in counts}


def _union(rows: Sequence[Mapping[str, float]]) -> tuple[str, ...]:
    return tuple(sorted({name for row in rows for name in row}))
