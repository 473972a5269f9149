"""Dataclasses from plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any, TypeVar, get_args, get_type_hints

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
