"""The keys of a config section: declared once, from which both the checks and the JSON Schema follow."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any, Literal

from sampling.files.faults import Fault, did_you_mean, join, key_name, shown

Kind = Literal["integer", "number", "boolean", "string"]
KINDS: Mapping[str, Kind] = {"int": "integer", "float": "number", "bool": "boolean", "str": "string"}
PYTHON: Mapping[Kind, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "string": (str,),
}
EXPECTED: Mapping[Kind, str] = {
    "integer": "a whole number",
    "number": "a number above 0",
    "boolean": "true or false",
    "string": "text",
}
LARGEST = 2**31 - 1
"""Sizes and ranks are 32-bit in the CUDA and MPI interfaces that a plan ends up in."""

Scalar = int | float | bool | str


@dataclass(frozen=True, kw_only=True, slots=True)
class Key:
    """One key of a section, by the kind and range of its value."""

    name: str
    kind: Kind
    required: bool = False
    nullable: bool = False
    """`null` means the same as leaving the key out."""
    default: Scalar | None = None
    minimum: int = 1
    maximum: int = LARGEST
    modelled_to: int = LARGEST
    """Larger values are well-formed, but refused as not modelled yet."""
    choices: Callable[[], Sequence[str]] | None = None
    pattern: str | None = None
    """Other texts than the choices that are allowed, as a regular expression of the whole."""
    unmodelled: tuple[str, ...] = ()
    """Choices that exist elsewhere, but are refused as not modelled yet."""
    doc: str = ""

    def allowed(self) -> str:
        """The values a user may give, in words."""
        if self.choices:
            return f"one of {', '.join(self.choices())}"
        if self.kind == "integer" and self.modelled_to < LARGEST:
            span = range(self.minimum, self.modelled_to + 1)
            return " or ".join(map(str, span))
        if self.kind == "integer":
            return f"a whole number from {self.minimum} to {self.maximum}"
        if self.kind == "number" and self.maximum < LARGEST:
            return f"a number above 0, {self.maximum:g} at most"
        if self.kind == "number" and self.default == 0:
            return "a number of 0 or more"
        return EXPECTED[self.kind]

    def malformed(self, value: Any) -> str | None:
        """What is wrong with a value, or None."""
        if type(value) not in PYTHON[self.kind]:  # True is an int to isinstance
            return f"{shown(value)} is not {EXPECTED[self.kind]}; give {self.allowed()}"
        if isinstance(value, int) and self.kind == "integer" and not self.minimum <= value <= self.maximum:
            return f"{shown(value)} is out of range; give {self.allowed()}"
        if self.kind == "number" and not (value == self.default or 0 < value <= self.maximum):
            return f"{shown(value)} is out of range; give {self.allowed()}"
        if self.pattern and re.fullmatch(self.pattern, str(value)):
            return None
        if self.choices and value not in (known := self.choices()) and value not in self.unmodelled:
            return f"{shown(value)} is not known; give {self.allowed()}{did_you_mean(value, known)}"
        return None

    def refused(self, value: Scalar) -> str | None:
        """Why a well-formed value cannot be predicted, or None."""
        if value in self.unmodelled or (self.kind == "integer" and int(value) > self.modelled_to):
            return f"{shown(value)} is not modelled yet; set {self.name} to {self.allowed()}"
        return None


def keys_of(cls: Any, **settings: Mapping[str, Any]) -> tuple[Key, ...]:
    """The keys of a dataclass of ints, bools and strs; a field without a default is required.

    `settings` adds to or replaces what the fields say: field → arguments of its Key.
    """
    keys = []
    for field in fields(cls):
        required = field.default is MISSING
        said: dict[str, Any] = {"name": field.name, "kind": KINDS[str(field.type)], "required": required}
        if not required:
            said["default"] = field.default
        keys.append(Key(**(said | dict(settings.get(field.name, {})))))
    return tuple(keys)


def check(
    values: Mapping[Any, Any], keys: Sequence[Key], *, section: str = "", also_known: Iterable[str] = ()
) -> tuple[dict[str, Scalar], list[Fault]]:
    """The well-formed values with defaults filled in, and every fault of a section.

    A value that is well-formed but not modelled yet is a fault and still returned, so that rules across keys can use it.
    """
    known = [key.name for key in keys]
    faults = unknown_keys(values, known, section=section, also_known=also_known)
    good: dict[str, Scalar] = {}
    for key in keys:
        path = join(section, key.name)
        value: Any = _as_number(values.get(key.name)) if key.kind == "number" else values.get(key.name)
        if key.name not in values or (value is None and key.nullable):
            if key.required and key.name not in values:
                faults.append(Fault(path=path, problem=f"missing; add {key.name}: {key.allowed()}, it has no default"))
            elif key.default is not None:
                good[key.name] = key.default
            continue
        problem = key.malformed(value)
        if problem is None:
            good[key.name] = value
            problem = key.refused(value)
        if problem is not None:
            faults.append(Fault(path=path, problem=problem))
    return good, faults


def _as_number(value: Any) -> Any:
    """YAML 1.1 reads `1e9` as text; here it is the number that it looks like."""
    if isinstance(value, str) and re.fullmatch(r"[0-9.]+[eE][-+]?[0-9]+", value):
        return float(value)
    return value


def unknown_keys(
    values: Mapping[Any, Any], known: Collection[str], *, section: str = "", also_known: Iterable[str] = ()
) -> list[Fault]:
    """A fault for each key that is not `known`; `also_known` are further names worth suggesting."""
    candidates = [*known, *also_known]
    faults = []
    for name in values:
        if name not in known:
            advice = did_you_mean(name, candidates) or f"; allowed: {', '.join(known)}"
            faults.append(Fault(path=join(section, key_name(name)), problem=f"unknown key, remove it{advice}"))
    return faults
