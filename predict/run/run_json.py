"""A training run as plain data and back, to hand it to other processes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any, TypeVar, get_args, get_type_hints

from predict.run.training_run import TrainingRun

T = TypeVar("T")


def dump_run(run: TrainingRun) -> str:
    """The run as JSON, exactly: `load_run(dump_run(run)) == run`."""
    return json.dumps(asdict(run))


def load_run(text: str) -> TrainingRun:
    return rebuild(TrainingRun, json.loads(text))


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
