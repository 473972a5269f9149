"""Readers of YAML and JSON files that report every problem as a Fault at a key path."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from sampling.files.faults import Fault, did_you_mean, join, key_name, shown

try:
    from yaml import CSafeLoader as Loader
except ImportError:  # PyYAML built without libyaml
    from yaml import SafeLoader as Loader  # type: ignore[assignment]

MOST_BYTES = 100_000_000
"""Largest JSON file or order that is read; orders of thousands of microbatches have tens of MB."""
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
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "somewhere"
        return None, [_whole(f"not valid YAML at {where}: {error.problem or error.context}; mend the syntax there")]
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        return None, [_whole(f"not valid YAML: {_first_line(error)}; mend the syntax")]
    return _as_mapping(value, faults)


def parse_yaml(text: str) -> tuple[Any, list[Fault]]:
    """The value of a YAML text and its duplicate keys.

    Raises yaml.YAMLError, ValueError (a number or date that Python cannot hold) or RecursionError (nested too deeply).
    """
    loader = Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None, []
        return loader.construct_document(node), list(_duplicates(node, "", set()))
    finally:
        loader.dispose()


def _duplicates(node: yaml.Node, path: str, seen: set[int]) -> Iterator[Fault]:
    if not isinstance(node, yaml.MappingNode) or id(node) in seen:
        return
    seen.add(id(node))
    first_lines: dict[str, int] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        here, line = join(path, key_name(key.value)), key.start_mark.line + 1
        if key.value in first_lines:
            problem = f"given twice, on lines {first_lines[key.value]} and {line}; keep one"
            yield Fault(path=here, problem=problem)
        first_lines.setdefault(key.value, line)
        yield from _duplicates(value, here, seen)


def read_json(path: Path) -> Read:
    """Parse a JSON file whose top level must be an object."""
    text, faults = _read_text(path, MOST_BYTES)
    if text is None:
        return None, faults

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in items]
        twice = {name for name in names if names.count(name) > 1}
        faults.extend(Fault(path=key_name(name), problem="given twice; keep one") for name in sorted(twice))
        return dict(items)

    try:
        value = json.loads(text, object_pairs_hook=pairs)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        return None, [_whole(f"not valid JSON at {where}: {error.msg}; mend the syntax there")]
    except (ValueError, RecursionError) as error:
        return None, [_whole(f"not valid JSON: {_first_line(error)}; mend the syntax")]
    return _as_mapping(value, faults)


def _read_text(path: Path, most_bytes: int) -> tuple[str | None, list[Fault]]:
    try:
        if (size := path.stat().st_size) > most_bytes:
            problem = (
                f"holds {size / 1e6:.0f} MB, more than the {most_bytes / 1e6:.0f} MB that are read; give a smaller file"
            )
            return None, [_whole(problem)]
        return path.read_text(encoding="utf-8"), []
    except FileNotFoundError:
        return None, [_whole(f"there is no such file; check the path{_nearest_sibling(path)}")]
    except IsADirectoryError:
        return None, [_whole("is a directory; give a file in it")]
    except UnicodeDecodeError as error:
        return None, [_whole(f"is not UTF-8 text (byte {error.start}); give a text file")]
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        return None, [_whole(f"cannot be read ({reason}); check the path and its permissions")]


def _nearest_sibling(path: Path) -> str:
    try:
        return did_you_mean(path.name, [sibling.name for sibling in path.parent.iterdir()])
    except OSError:
        return ""


def _as_mapping(value: Any, faults: list[Fault]) -> Read:
    if isinstance(value, dict):
        return value, faults
    found = "is empty" if value is None else f"holds {shown(value)} at its top level"
    return None, [*faults, _whole(f"{found}; it must be a mapping of keys to values")]


def _whole(problem: str) -> Fault:
    return Fault(path="", problem=problem)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
