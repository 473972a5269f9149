"""The one serialiser: values as plain JSON by declared rules, and the versions of the formats that commands answer in.

- A dataclass is a mapping of its fields, whose names carry their units; of an interval, which is `{"median": …, "low": …, "high": …}`,
  the key above it does.
- An enum is its value, a path its text, a tuple or a set a list; a mapping keeps its order; an infinite number is null.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from functools import cache
from operator import attrgetter
from pathlib import PurePath
from typing import Any, TypeVar, get_args, get_type_hints


@dataclass(frozen=True, kw_only=True, slots=True)
class Format:
    """A format of JSON; `changes` say what each version after the first changed in the meaning of a key."""

    version: int = 1
    changes: Mapping[int, str] = field(default_factory=dict)


FIRST = Format()
FORMATS: Mapping[str, Format] = {
    "one-batch": Format(
        version=2,
        changes={2: "`smallest_cluster` is one on which the plan fits, `one_replica` is what it was"},
    ),
    "ledger": FIRST,
    "memory": FIRST,
    "schedule": FIRST,
    "days": FIRST,
    "job": FIRST,
    "job-offers": FIRST,
    "sensitivity": FIRST,
    "sweep": FIRST,
    "compare": Format(version=2, changes={2: "changes of times are per `per_tokens`"}),
    "search": FIRST,
    "speed-of-light": FIRST,
    "report": FIRST,
    "calibrate": FIRST,
    "history": FIRST,
    "what-if": Format(version=2),
    "serving": Format(
        version=4,
        changes={
            2: "`requests_per_s` counts completions from the first to the last",
            3: "`requests_per_s` counts only those before an overloaded server's queue is empty",
            4: "`requests_per_s` and `output_tokens_per_s` are those of all replicas; `per_replica` has one's, with `queue_growth_per_s`",
        },
    ),
    "serving-step": FIRST,
    "serving-sweep": FIRST,
    "serving-search": Format(
        version=2, changes={2: "`best`, `left_out` and `space` as in `search`, in place of the rows of a sweep"}
    ),
    "serving-compare": FIRST,
    "rl-step": FIRST,
    "rl-compare": FIRST,
    "rl-ledger": FIRST,
    "rl-memory": FIRST,
    "doctor": FIRST,
    "diagnose": FIRST,
    "explain": FIRST,
    "export": FIRST,
    "few-shot": FIRST,
    "import-config": FIRST,
    "learn-plan-setting": FIRST,
    "measure-rl": FIRST,
    "record": FIRST,
    "rl-search": Format(
        version=2,
        changes={
            2: "`left_out` and `space` are counts, as in `search`; `varied` is what `space` was, `step_time_us` what `step_us` was"
        },
    ),
    "rl-sweep": FIRST,
    "served": FIRST,
    "validate": FIRST,
    "validate-jobs": FIRST,
    "validate-memory": FIRST,
    "validate-own-loads": FIRST,
    "validate-own-rl": FIRST,
    "validate-published": FIRST,
    "validate-ranking": FIRST,
    "validate-recipes": FIRST,
    "validate-rl": FIRST,
    "validate-servers": FIRST,
    "validate-serving": FIRST,
}
"""Name of a format, its command's or with its kind before it → the format. A version changes when a key changes its meaning."""


def version_of(name: str) -> int:
    """The version of a format."""
    return FORMATS[name].version


def versioned(name: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a format behind its version, as plain JSON."""
    return {"version": version_of(name), **as_json(content)}


def as_json(value: Any) -> Any:
    """A value as JSON takes it, by the rules above."""
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, str | int | float):
        return None if isinstance(value, float) and math.isinf(value) else value
    if is_dataclass(value) and not isinstance(value, type):
        return {name: as_json(getattr(value, name)) for name in _names(type(value))}
    if isinstance(value, Mapping):
        return {key: as_json(each) for key, each in value.items()}
    if isinstance(value, list | tuple | Set):
        return [as_json(each) for each in value]
    return str(value) if isinstance(value, PurePath) else value


def picked(value: object, declared: str) -> dict[str, Any]:
    """Attributes of a value as plain JSON. `declared` has a word for each: its name, or the key and a path of names, `mfu=palm.mfu`; a
    `*` at its start stands for all fields. Of no value each is null."""
    readers = _readers(declared.removeprefix("*"))
    if value is None:
        return dict.fromkeys(key for key, _ in readers)
    found = as_json(value) if declared.startswith("*") else {}
    return found | {key: as_json(read(value)) for key, read in readers}


def each_picked(values: Iterable[object], declared: str) -> list[dict[str, Any]]:
    """The same attributes of each value."""
    return [picked(value, declared) for value in values]


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind))


@cache
def _readers(declared: str) -> tuple[tuple[str, attrgetter[Any]], ...]:
    words = (word.partition("=") for word in declared.split())
    return tuple((key, attrgetter(path or key)) for key, _, path in words)


T = TypeVar("T")


def rebuild(cls: type[T], values: Mapping[str, Any]) -> T:
    """A dataclass from its `asdict`; fields that are dataclasses themselves are rebuilt too."""
    hints = get_type_hints(cls)
    return cls(**{key: _value(hints[key], value) for key, value in values.items()})


def _value(hint: Any, value: Any) -> Any:
    if isinstance(value, dict):
        found = next((each for each in (hint, *get_args(hint)) if is_dataclass(each) and isinstance(each, type)), None)
        return rebuild(found, value) if found else value
    if isinstance(value, list):
        (of, *_) = get_args(hint) or (None,)
        return tuple(_value(of, each) for each in value)
    return value
