"""Calls as numbers: the roofline terms and features that a time model takes, and the call's own fields."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from sampling.call import Call, Phase, field_names
from sampling.hardware.cluster import Cluster

MANY_CALLS = 64
"""Calls of a kind from which on they are priced at once: for fewer, arrays cost more than they save."""


class Priced(NamedTuple):
    """The inputs of a time model for one call: roofline terms (µs at peak), features, and the call's fields as numbers."""

    terms: Mapping[str, float]
    features: Mapping[str, float]
    codes: tuple[float, ...]


class ModelKey(NamedTuple):
    """The calls that one model predicts. `threads` are the CPU threads per rank, 0 on a GPU."""

    name: str
    phase: Phase
    threads: int

    def __str__(self) -> str:
        return f"{self.name} {self.phase}" + (f" ({self.threads} threads)" if self.threads else "")


def price(call: Call, phase: Phase, cluster: Cluster) -> Priced:
    return Priced(call.terms(phase, cluster), call.features(phase, cluster), codes(call))


def price_all(calls: Sequence[Call], phase: Phase, cluster: Cluster) -> list[Priced]:
    """`price` for calls of one kind; MANY_CALLS and more are priced at once, if the kind declares its COLUMNS."""
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
    """Price calls that differ only in the fields named in COLUMNS."""
    first = calls[0]
    arrays = {name: np.array([getattr(call, name) for call in calls]) for name in first.COLUMNS}
    column = type(first)(**{**first.fields(), **arrays})
    coded = {name: arrays[name] if name in arrays else _code(value) for name, value in first.fields().items()}
    terms, features = column.terms(phase, cluster), column.features(phase, cluster)
    rows = (_rows(columns, len(calls)) for columns in (terms, features, coded))
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
    """The call's fields as numbers, in order of declaration; a string becomes a digest of it."""
    return tuple(_code(value) for value in call.fields().values())


@lru_cache(maxsize=4096)
def _code(value: int | bool | str) -> float:
    if not isinstance(value, str):
        return float(value)
    return float(int.from_bytes(hashlib.blake2b(value.encode(), digest_size=6).digest(), "little")) if value else 0.0
