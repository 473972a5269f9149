"""Readers of YAML and JSON files that report every problem as a Fault at a key path.

YAML texts are read by PyYAML, bounded before any value is made. A machine with a GPU may have no PyYAML: there the shipped files are
read by their JSON copies, and other files only if they hold JSON.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sampling.files import disk
from sampling.files.disk import NotReadError
from sampling.files.faults import Fault, did_you_mean, first_line, join, key_name, nearest, shown
from sampling.files.yaml_copies import copied_value

try:
    import yaml
except ModuleNotFoundError:
    yaml = None  # type: ignore[assignment]

MOST_YAML_BYTES = 4_000_000
"""Largest YAML file that is read; people write them, and reading is slow."""
MOST_NODES = 200_000
"""Most values of a YAML text, with its aliases written out."""
DEEPEST = 100
"""Most YAML collections inside each other: libyaml's composer overflows the stack at some ten thousands."""
LONGEST_SCALAR = 100_000
"""Characters of a YAML value; reading a sexagesimal number takes time quadratic in them."""
NOT_A_VALUE = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError)
"""Errors that PyYAML's constructors raise for a value that is not what its tag says."""


class NotYamlError(ValueError):
    """A text that is not YAML, or too large: where and what is wrong, to follow `not valid YAML`."""


Read = tuple[dict[Any, Any] | None, list[Fault]]
"""A file's mapping (None if it has none) and its faults. A file with a duplicate key has both."""


def read_yaml(path: Path) -> Read:
    """Parse a YAML file whose top level must be a mapping."""
    text, faults = _read_text(path, MOST_YAML_BYTES)
    if text is None:
        return None, faults
    try:
        value, faults = parse_yaml(text) if yaml else (_without_pyyaml(path, text), [])
    except NotYamlError as error:
        return None, [_whole(f"not valid YAML{error}")]
    return _as_mapping(value, faults)


def _without_pyyaml(path: Path, text: str) -> Any:
    """The value of a shipped file by its copy, and of another file whose YAML is JSON."""
    try:
        return copied_value(path, text)
    except LookupError:
        pass
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise NotYamlError(
            ": this Python has no PyYAML, and it is not JSON either; install PyYAML, or write JSON"
        ) from None


def parse_yaml(text: str) -> tuple[Any, list[Fault]]:
    """The value of a YAML text and its duplicate keys; NotYamlError for a text that has none, or is too large."""
    try:
        return _parsed(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "somewhere"
        raise NotYamlError(f" at {where}: {error.problem or error.context}; mend the syntax there") from None
    except yaml.YAMLError as error:
        raise NotYamlError(f": {first_line(error)}; mend the syntax") from None


def _loader() -> Any:
    return getattr(yaml, "CSafeLoader", None) or yaml.SafeLoader  # PyYAML may be built without libyaml


def _parsed(text: str) -> tuple[Any, list[Fault]]:
    _require_small(text)
    loader = _loader()(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None, []
        return loader.construct_document(node), list(_duplicates(node, "", set()))
    except NOT_A_VALUE as error:
        raise yaml.YAMLError(f"a value is not what it looks like or is tagged as ({first_line(error)})") from None
    finally:
        loader.dispose()


def _require_small(text: str) -> None:
    """yaml.YAMLError for a text too deep, or too large once its aliases are written out, raised before any value is made."""
    sizes: dict[str, int] = {}
    open_nodes: list[tuple[str | None, int]] = [(None, 0)]
    for event in yaml.parse(text, Loader=_loader()):
        anchor, size = getattr(event, "anchor", None), 0
        if isinstance(event, yaml.CollectionStartEvent):
            open_nodes.append((anchor, 1))
            if len(open_nodes) > DEEPEST:
                raise _too_large(event, f"more than {DEEPEST} lists and mappings inside each other")
            continue
        if isinstance(event, yaml.CollectionEndEvent):
            anchor, size = open_nodes.pop()
        elif isinstance(event, yaml.ScalarEvent):
            size = 1
            if len(event.value) > LONGEST_SCALAR:
                raise _too_large(event, f"a value of more than {LONGEST_SCALAR:,} characters")
        elif isinstance(event, yaml.AliasEvent):
            if any(anchor == around for around, _ in open_nodes):
                raise _too_large(event, "an alias of what it is itself a part of")
            anchor, size = None, sizes.get(anchor or "", 1)
        if anchor is not None:
            sizes[anchor] = size
        around, others = open_nodes[-1]
        open_nodes[-1] = around, others + size
        if others + size > MOST_NODES:
            raise _too_large(event, f"more than {MOST_NODES:,} values, with aliases written out")


def _too_large(event: Any, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)


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
    text, faults = _read_text(path, disk.MOST_BYTES)
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
        value = json.loads(text, object_pairs_hook=pairs) if text.strip() else None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        return None, [_whole(f"not valid JSON at {where}: {error.msg}; mend the syntax there")]
    except (ValueError, RecursionError) as error:
        return None, [_whole(f"not valid JSON: {first_line(error)}; mend the syntax")]
    return _as_mapping(value, faults)


def _read_text(path: Path, most_bytes: int) -> tuple[str | None, list[Fault]]:
    try:
        return disk.read_text(path, most_bytes=most_bytes), []
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
    found = "is empty" if value in (None, []) else f"holds {shown(value)} at its top level"
    return None, [*faults, _whole(f"{found}; it must be a mapping of keys to values")]


def _whole(problem: str) -> Fault:
    return Fault(path="", problem=problem)
