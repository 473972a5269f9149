"""Files checked against the dataclass that declares their keys: every fault in one pass, or an instance of the dataclass.

A dataclass may add to its fields:
- `HEADER`, a ClassVar of what the file must say to be of this kind and version, as {"format": "stage-times", "version": 1};
- `contradictions()`, which yields a Fault for each pair of sound values that do not fit together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

from sampling.errors import ConfigError, UserError
from sampling.files.documents import read_json, read_yaml
from sampling.files.faults import Fault, config_error, did_you_mean, join, key_name, shown
from sampling.files.keys import Key, keys_of

T = TypeVar("T")
MOST_TOLD = 5
"""Faulty elements of one list or mapping that are reported."""
MOST_UNKNOWN = 20
"""Unknown keys of one mapping that are reported, each with the known key nearest to it."""
LONGEST_NUMBER = 100
"""Characters of a number."""


def read(cls: type[T], path: Path, *, error: type[UserError] = ConfigError, fix: str = "") -> T:
    """Read a JSON file (.json), or else a YAML file, of the keys that `cls` declares.

    Raises `error` with a line for each fault: `file: key path: what is wrong; what is allowed; fix`.
    """
    content, faults = read_json(path) if path.suffix.lower() == ".json" else read_yaml(path)
    made = None
    if content is not None:
        made, more = build(cls, content)
        faults = [*faults, *more]
    if made is None or faults:
        raise config_error(faults, {"": str(path)}, error=error, fix=fix)
    return made


def build(cls: type[T], values: Mapping[Any, Any], *, section: str = "") -> tuple[T | None, list[Fault]]:
    """An instance of `cls` (None if there are faults) and every fault of its keys, whose paths start with `section`."""
    header: Mapping[str, Any] = getattr(cls, "HEADER", {})
    if wrong := [_wrong_header(values, name, wanted) for name, wanted in header.items() if values.get(name) != wanted]:
        return None, [fault.under(section) for fault in wrong]  # the rest is of another kind or version
    keys = keys_of(cls)  # type: ignore[arg-type]
    rest = {name: value for name, value in values.items() if name not in header}
    good, faults = check(rest, keys, section=section)
    if faults:
        return None, faults
    names = {field.name.rstrip("_"): field.name for field in fields(cls)}  # type: ignore[arg-type]
    nulls = {key.name: None for key in keys if key.required and key.nullable}
    made = cls(**{names[name]: value for name, value in {**nulls, **good}.items()})
    contradictions: Callable[[], Iterable[Fault]] = getattr(made, "contradictions", tuple)
    faults = [fault.under(section) for fault in contradictions()]
    return (None if faults else made), faults


def _wrong_header(values: Mapping[Any, Any], name: str, wanted: Any) -> Fault:
    found = f"{shown(values[name])}, but this version reads {shown(wanted)}" if name in values else "missing"
    return Fault(path=name, problem=f"{found}; give a file with {name}: {shown(wanted)}")


def check(
    values: Mapping[Any, Any], keys: Sequence[Key], *, section: str = "", also_known: Iterable[str] = ()
) -> tuple[dict[str, Any], list[Fault]]:
    """The well-formed values with defaults filled in, and every fault of a section.

    A value that is well-formed but not modelled yet is a fault and still returned, so that rules across keys can use it.
    """
    faults = unknown_keys(values, [key.name for key in keys], section=section, also_known=also_known)
    good: dict[str, Any] = {}
    for key in keys:
        if key.name in values and not (values[key.name] is None and key.nullable):
            value, wrong = _checked(key, values[key.name], join(section, key.name))
            faults += wrong
            if not wrong or key.refused(value):
                good[key.name] = value
        elif key.required and key.name not in values:
            faults.append(_missing(key, section))
        elif key.default is not None:
            good[key.name] = key.default
    return good, faults


def _missing(key: Key, section: str) -> Fault:
    problem = f"missing; add {key.name}: {key.allowed()}, it has no default"
    return Fault(path=join(section, key.name), problem=problem)


def _checked(key: Key, given: Any, path: str) -> tuple[Any, list[Fault]]:
    """One value as its dataclass holds it, and the faults of it and of what is inside it."""
    value = _as_number(given) if key.kind == "number" else given
    if key.takes_element and key.element and not isinstance(value, list):
        return _checked(replace(key.element, meaning=key.element.meaning or "one, or a list of them"), value, path)
    if problem := key.malformed(value) or key.refused(value):
        return value, [Fault(path=path, problem=problem)]
    if key.of:
        return build(key.of, value, section=path)
    return _container(key, key.element, value, path) if key.element else (value, [])


def _container(key: Key, element: Key, value: Any, path: str) -> tuple[Any, list[Fault]]:
    """A list or mapping, and the faults of what is in it."""
    if key.kind == "list":
        places = ((f"{path}[{index}]", each) for index, each in enumerate(value))
        made, faults = ([*value], []) if element.kind == "anything" else _elements(element, places)
        return key.container(made), faults
    faults = unknown_keys(value, key.choices(), section=path) if key.choices else []
    faults += [_missing(replace(element, name=name), path) for name in key.needs if name not in value]
    known = [name for name in value if not key.choices or name in key.choices()]
    made, more = _elements(element, ((join(path, key_name(name)), value[name]) for name in known))
    return dict(zip(known, made, strict=False)), [*faults, *more]


def _elements(element: Key, places: Iterable[tuple[str, Any]]) -> tuple[list[Any], list[Fault]]:
    """The elements of a list or mapping, given by their key paths, and the faults of the first few faulty ones."""
    made: list[Any] = []
    faults: list[Fault] = []
    faulty = 0
    for path, given in places:
        value, wrong = (None, []) if given is None and element.nullable else _checked(element, given, path)
        made.append(value)
        faults += wrong
        faulty += bool(wrong)
        if faulty == MOST_TOLD:
            break
    return made, faults


def _as_number(value: Any) -> Any:
    """YAML 1.1 reads `1e9` as text; here it is the number that it looks like."""
    written = isinstance(value, str) and len(value) <= LONGEST_NUMBER
    if written and re.fullmatch(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+", value):
        return float(value)
    return value


def unknown_keys(
    values: Mapping[Any, Any], known: Collection[str], *, section: str = "", also_known: Iterable[str] = ()
) -> list[Fault]:
    """A fault for each key that is not `known`; `also_known` are further names worth suggesting."""
    candidates = [*known, *also_known]
    unknown = [name for name in values if name not in known]
    if len(unknown) > MOST_TOLD and len(unknown) == len(
        values
    ):  # another kind of file, whose content is not ours to show
        problem = f"none of its {len(values)} keys is known here, so it is something else; allowed: {', '.join(known)}"
        return [Fault(path=section, problem=problem)]
    faults = []
    for name in unknown[:MOST_UNKNOWN]:
        advice = did_you_mean(name, candidates) or f", remove it; allowed: {', '.join(known)}"
        faults.append(Fault(path=join(section, key_name(name)), problem=f"unknown key{advice}"))
    if len(unknown) > MOST_UNKNOWN:
        faults.append(Fault(path=section, problem=f"{len(unknown) - MOST_UNKNOWN} more unknown keys; remove them"))
    return faults
