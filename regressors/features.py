"""From calls to numbers: the columns a time model looks at, by name, and a digest that notices when they change."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache, lru_cache
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sampling.arithmetic.composite import Composite
from sampling.call import Call, Phase, field_names
from sampling.collectives.kinds import Collective
from sampling.errors import SamplesError
from sampling.hardware.cluster import Cluster

Floats: TypeAlias = NDArray[np.float64]
LENT = "lent"
"""The term that is the time by the model of another device."""
SAID_BEFORE = "group_nodes"
"""The field whose default digests hold: rows were stored with it before defaults were left out."""
MANY_CALLS = 64
"""From here on, calls of a kind are priced at once: for fewer, arrays cost more than they save."""


class Priced(NamedTuple):
    """What a time model needs of a call: its roofline terms, its features, and its own fields as numbers."""

    terms: Mapping[str, float]
    features: Mapping[str, float]
    codes: tuple[float, ...]


class ModelKey(NamedTuple):
    """What one model answers for. `threads` are a rank's CPU threads, 0 on a GPU."""

    name: str
    phase: Phase
    threads: int

    def __str__(self) -> str:
        return f"{self.name} {self.phase}" + (f" ({self.threads} threads)" if self.threads else "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Schema:
    """The columns of one model: roofline terms (µs at peak) and features, each in a fixed order.

    `absent` holds the columns that only some calls have, and what stands in where one lacks them: 0 µs for a term, the
    least value sampled for a feature (a layer on one rank has no time on the wire). Of the kinds of a call, such as
    `kernel=triton`, the one sampled most stands in for a call that names none; one never sampled is no kind at all.
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
        """Whether calls with just these roofline terms were sampled; a layer over ranks has more than one on a single rank."""
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
        """A call that says of what kind it is, is of no other."""
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


def price(call: Call, phase: Phase, cluster: Cluster) -> Priced:
    return Priced(call.terms(phase, cluster), call.features(phase, cluster), codes(call))


def price_all(calls: Sequence[Call], phase: Phase, cluster: Cluster) -> list[Priced]:
    """The same of many calls of one kind: of MANY_CALLS and more at once, where the kind allows it."""
    if len(calls) < MANY_CALLS or not type(calls[0]).COLUMNS:
        return [price(call, phase, cluster) for call in calls]
    alike: dict[tuple[Any, ...], list[int]] = {}
    constant = [name for name in field_names(type(calls[0])) if name not in calls[0].COLUMNS]
    for place, call in enumerate(calls):
        alike.setdefault(tuple(getattr(call, name) for name in constant), []).append(place)
    priced: dict[int, Priced] = {}
    for places in alike.values():
        priced |= zip(places, _price_columns([calls[place] for place in places], phase, cluster), strict=True)
    return [priced[place] for place in range(len(calls))]


def _price_columns(calls: Sequence[Call], phase: Phase, cluster: Cluster) -> Iterator[Priced]:
    """Of calls that differ in their COLUMNS alone."""
    first = calls[0]
    arrays = {name: np.array([getattr(call, name) for call in calls]) for name in first.COLUMNS}
    column = type(first)(**{**first.fields(), **arrays})
    coded = {name: arrays[name] if name in arrays else _code(value) for name, value in first.fields().items()}
    terms, features = column.terms(phase, cluster), column.features(phase, cluster)
    rows = (_rows(part, len(calls)) for part in (terms, features, coded))
    for term_row, feature_row, code_row in zip(*rows, strict=True):
        yield Priced(
            dict(zip(terms, term_row, strict=True)), dict(zip(features, feature_row, strict=True)), tuple(code_row)
        )


def _rows(columns: Mapping[str, Any], count: int) -> list[list[float]]:
    whole = np.empty((count, len(columns)))
    for place, values in enumerate(columns.values()):
        whole[:, place] = values
    rows: list[list[float]] = whole.tolist()
    return rows


def codes(call: Call) -> tuple[float, ...]:
    """The call's fields as numbers, in the order of their declaration; words by a digest."""
    return tuple(_code(value) for value in call.fields().values())


@lru_cache(maxsize=4096)
def _code(value: int | bool | str) -> float:
    if not isinstance(value, str):
        return float(value)
    return float(int.from_bytes(hashlib.blake2b(value.encode(), digest_size=6).digest(), "little")) if value else 0.0


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


def hardware_digest(cluster: Cluster) -> str:
    """Identifies the stated peaks that terms and features are computed from: the device's, a hyphen, its links'."""
    gpu = cluster.gpu
    device = [
        sorted(gpu.peak_tflops.items()),
        gpu.memory_gb_per_s,
        gpu.cache_mib,
        gpu.threads,
        gpu.multiprocessors,
    ]
    links = [(link.latency_us, link.gb_per_s) for link in (cluster.intra_node, cluster.inter_node)]
    return "-".join(hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:8] for facts in (device, links))


def same_hardware(kind: type[Call], sampled: str, digest: str) -> bool:
    """Whether what a kind of call depends on is alike in two digests: links alone for collectives, the device for operators,
    both for cells, which may have a group's communication inside."""
    if sampled == digest:
        return True
    device, _, links = sampled.partition("-")
    own_device, _, own_links = digest.partition("-")
    if issubclass(kind, Collective):
        return links == own_links
    return device == own_device and not issubclass(kind, Composite)


@cache
def _defaults(kind: type[Call]) -> Mapping[str, int | bool | str]:
    """The defaults of a call's fields that digests leave out."""
    return {
        field.name: field.default
        for field in fields(kind)
        if field.default is not MISSING and field.name != SAID_BEFORE
    }


def shape_digest(call: Call, phase: Phase, threads: int) -> int:
    """A 64-bit key of what was timed, equal on every machine and Python.

    A field with its default says nothing and is left out, so that it may be younger than the samples.
    """
    unsaid = _defaults(type(call))
    said = sorted((name, value) for name, value in call.fields().items() if unsaid.get(name) != value)
    text = json.dumps([call.NAME, phase, threads, said])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
