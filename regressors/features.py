"""From calls to numbers: the columns a time model looks at, by name, and a digest that notices when they change."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sampling.call import Call, Phase
from sampling.errors import SamplesError
from sampling.hardware import Cluster

Floats: TypeAlias = NDArray[np.float64]
Priced: TypeAlias = tuple[dict[str, float], dict[str, float]]
"""A call's roofline terms and its features."""


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
    least value sampled for a feature (a layer on one rank has no time on the wire).
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
        return not self._faults(self.terms, priced[0])

    def matrices(self, priced: Sequence[Priced]) -> tuple[Floats, Floats]:
        """Terms [calls, terms] and features [calls, features].

        Raises SamplesError for columns other than those of the training samples.
        """
        for terms, features in priced:
            faults = self._faults(self.terms, terms) + self._faults(self.features, features)
            if faults:
                raise SamplesError(f"columns {faults} are not those that the model was fitted on")
        return (
            self._matrix(self.terms, [terms for terms, _ in priced]),
            self._matrix(self.features, [features for _, features in priced]),
        )

    def _faults(self, known: tuple[str, ...], given: Mapping[str, float]) -> list[str]:
        return sorted(name for name in given.keys() ^ set(known) if not (name in known and name in self.absent))

    def _matrix(self, names: tuple[str, ...], rows: Sequence[Mapping[str, float]]) -> Floats:
        values = [[row[name] if name in row else self.absent[name] for name in names] for row in rows]
        return np.asarray(values, dtype=np.float64).reshape(len(values), len(names))


def price(call: Call, phase: Phase, cluster: Cluster) -> Priced:
    return call.terms(phase, cluster), call.features(phase, cluster)


def schema_of(priced: Sequence[Priced]) -> Schema:
    """The union of the calls' columns, sorted by name."""
    terms, features = ([row[part] for row in priced] for part in (0, 1))
    some_terms = {name: 0.0 for name in _union(terms) if any(name not in row for row in terms)}
    some_features = {
        name: min(row[name] for row in features if name in row)
        for name in _union(features)
        if any(name not in row for row in features)
    }
    return Schema(terms=_union(terms), features=_union(features), absent=some_terms | some_features)


def _union(rows: Sequence[Mapping[str, float]]) -> tuple[str, ...]:
    return tuple(sorted({name for row in rows for name in row}))


def hardware_digest(cluster: Cluster) -> str:
    """Identifies the stated peaks that terms and features are computed from."""
    gpu = cluster.gpu
    facts = [
        sorted(gpu.peak_tflops.items()),
        gpu.memory_gb_per_s,
        gpu.cache_mib,
        gpu.threads,
        [(link.latency_us, link.gb_per_s) for link in (cluster.intra_node, cluster.inter_node)],
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def shape_digest(call: Call, phase: Phase, threads: int) -> int:
    """A 64-bit key of what was timed, equal on every machine and Python.

    An empty field says nothing and is left out, so that it may be younger than the samples.
    """
    said = sorted((name, value) for name, value in call.fields().items() if value != "")
    text = json.dumps([call.NAME, phase, threads, said])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
