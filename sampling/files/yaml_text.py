"""YAML texts through PyYAML: bounded before any value is made, and with their duplicate keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from sampling.files.faults import Fault, first_line, join, key_name
from sampling.files.plain_yaml import NotYamlError

try:
    from yaml import CSafeLoader as Loader
except ImportError:  # PyYAML built without libyaml
    from yaml import SafeLoader as Loader  # type: ignore[assignment]

MOST_NODES = 200_000
"""Most values of a YAML text, with its aliases written out."""
DEEPEST = 100
"""Most YAML collections inside each other: libyaml's composer overflows the stack at some ten thousands."""
LONGEST_SCALAR = 100_000
"""Characters of a YAML value; reading a sexagesimal number takes time quadratic in them."""
NOT_A_VALUE = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError)
"""Errors that PyYAML's constructors raise for a value that is not what its tag says."""


def parse_whole_yaml(text: str) -> tuple[Any, list[Fault]]:
    """The value of a YAML text and its duplicate keys; NotYamlError for a text that has none, or is too large."""
    try:
        return _parsed(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "somewhere"
        raise NotYamlError(f" at {where}: {error.problem or error.context}; mend the syntax there") from None
    except yaml.YAMLError as error:
        raise NotYamlError(f": {first_line(error)}; mend the syntax") from None


def _parsed(text: str) -> tuple[Any, list[Fault]]:
    _require_small(text)
    loader = Loader(text)
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
    """yaml.YAMLError for a text too deep, or too large once its aliases are written out, told before any value is made."""
    sizes: dict[str, int] = {}
    open_nodes: list[tuple[str | None, int]] = [(None, 0)]
    for event in yaml.parse(text, Loader=Loader):
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
