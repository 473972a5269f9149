"""Readers of YAML and JSON files that report every problem as a Fault at a key path."""

from __future__ import annotations

import json
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sampling.files import disk as regular
from sampling.files.disk import NotReadError
from sampling.files.faults import Fault, did_you_mean, first_line, key_name, nearest, shown
from sampling.files.plain_yaml import NotYamlError, parse_plain

MOST_YAML_BYTES = 4_000_000
"""Largest YAML file that is read; people write them, and reading is slow."""
Read = tuple[dict[Any, Any] | None, list[Fault]]
"""A file's mapping (None if it has none) and its faults. A file with a duplicate key has both."""


def read_yaml(path: Path) -> Read:
    """Parse a YAML file whose top level must be a mapping."""
    text, faults = _read_text(path, MOST_YAML_BYTES)
    if text is None:
        return None, faults
    try:
        value, faults = parse_yaml(text)
    except NotYamlError as error:
        return None, [_whole(f"not valid YAML{error}")]
    return _as_mapping(value, faults)


def parse_yaml(text: str) -> tuple[Any, list[Fault]]:
    """The value of a YAML text and its duplicate keys; NotYamlError for a text that has none, or is too large.

    Without PyYAML, which a bare machine with a GPU may lack, only the plain part that shipped files are written in is read.
    """
    if find_spec("yaml") is None:
        return parse_plain(text)
    from sampling.files.yaml_text import parse_whole_yaml

    return parse_whole_yaml(text)


def read_json(path: Path) -> Read:
    """Parse a JSON file whose top level must be an object."""
    text, faults = _read_text(path, regular.MOST_BYTES)
    if text is None:
        return None, faults

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(items)
        if len(made) < len(items):
            counts = Counter(name for name, _ in items)
            twice = sorted(name for name, count in counts.items() if count > 1)
            faults.extend(Fault(path=key_name(name), problem="given twice; keep one") for name in twice)
        return made

    try:
        value = json.loads(text, object_pairs_hook=pairs)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        return None, [_whole(f"not valid JSON at {where}: {error.msg}; mend the syntax there")]
    except (ValueError, RecursionError) as error:
        return None, [_whole(f"not valid JSON: {first_line(error)}; mend the syntax")]
    return _as_mapping(value, faults)


def _read_text(path: Path, most_bytes: int) -> tuple[str | None, list[Fault]]:
    try:
        return regular.read_text(path, most_bytes=most_bytes), []
    except NotReadError as error:
        near = _nearest_sibling(path) if str(error).startswith("there is no") else ""
        return None, [_whole(f"{error}{near}")]


def _nearest_sibling(path: Path) -> str:
    try:
        siblings = [sibling.name for sibling in path.parent.iterdir()]
    except OSError:
        return ""
    # a suffix in common makes no two files alike
    return did_you_mean(path.name, [name for name in siblings if nearest(path.stem, [Path(name).stem])])


def _as_mapping(value: Any, faults: list[Fault]) -> Read:
    if isinstance(value, dict):
        return value, faults
    found = "is empty" if value is None else f"holds {shown(value)} at its top level"
    return None, [*faults, _whole(f"{found}; it must be a mapping of keys to values")]


def _whole(problem: str) -> Fault:
    return Fault(path="", problem=problem)
