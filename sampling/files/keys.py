"""The keys that a file may hold, declared as the fields of a frozen dataclass.

    @dataclass(frozen=True, kw_only=True, slots=True)
    class Link:
        gb_per_s: float                                        # required; a number above 0
        latency_us: Annotated[float, Key(maximum=1e6)] = 0.0   # 0 or more, since that is the default
        names: tuple[str, ...] = ()                            # a list of texts
        sources: Mapping[Literal["a", "b"], str]               # a mapping whose keys are a or b
        inner: Other | None = None                             # a section of its own, or null
    where: str | tuple[str, ...]                           # a text, or a list of them

`sampling.files.schema` reads a file of such keys. The same declarations give the JSON Schema and the reference pages.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin

from sampling.files.faults import did_you_mean, shown

Kind = Literal["integer", "number", "boolean", "string", "list", "mapping", "section", "anything"]
KINDS: Mapping[Any, Kind] = {int: "integer", float: "number", bool: "boolean", str: "string"}
PYTHON: Mapping[Kind, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "string": (str,),
    "list": (list, tuple),
    "mapping": (dict,),
    "section": (dict,),
}
EXPECTED: Mapping[Kind, str] = {
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "string": "text",
    "list": "a list",
    "mapping": "a mapping",
    "section": "a mapping",
    "anything": "any value",
}
LARGEST = 2**31 - 1
"""Sizes and ranks are 32-bit in the CUDA and MPI interfaces that a plan ends up in."""

LONGEST_TEXT = 20_000
"""Characters of a text; the longest in use list the layers of each stage, or the tokens of each expert."""
Scalar = int | float | bool | str


@dataclass(frozen=True, kw_only=True, slots=True)
class Key:
    """The kind and range of one value. A field's own limits go into its type: `Annotated[int, Key(maximum=3)]`."""

    name: str = ""
    kind: Kind = "anything"
    required: bool = False
    nullable: bool = False
    """`null` means the same as omitting the key."""
    default: Any = None
    minimum: float | None = None
    """Smallest number allowed; without it 0 where the default is 0, else a whole number from 1 or a number above 0. For a
    text, list or mapping the smallest length, 0 without it."""
    maximum: float = LARGEST
    choices: Callable[[], Sequence[str]] | None = None
    """The texts allowed; of a mapping, the keys allowed."""
    pattern: str | None = None
    """Texts that are allowed beside the choices, as a regular expression of the whole text."""
    unmodelled: tuple[str, ...] = ()
    """Choices that exist elsewhere, but are refused as not modelled yet."""
    meaning: str = ""
    """A description of the value, added to what errors say is allowed; for example `dense TFLOP/s by dtype`."""
    needs: tuple[str, ...] = ()
    """Keys that a mapping must have."""
    of: type | None = None
    """The dataclass that declares the keys of a section."""
    element: Key | None = None
    """The elements of a list, or the values of a mapping."""
    container: type = tuple
    """The type that a list becomes: a tuple or a list."""
    takes_element: bool = False
    """An element may stand there in place of a list, and is kept so."""

    @property
    def lowest(self) -> float:
        """The smallest value allowed; a number without `minimum` must lie above it."""
        if self.minimum is not None:
            return self.minimum
        return 0 if self.kind == "number" or self.default == 0 else 1

    @property
    def excludes_lowest(self) -> bool:
        return self.kind == "number" and self.minimum is None and self.default != 0

    def allowed(self) -> str:
        """The values a user may give, in words."""
        values = self._allowed_values()
        return f"{values}: {self.meaning}" if self.meaning else values

    def _allowed_values(self) -> str:
        if self.kind in ("integer", "number"):
            return f"{EXPECTED[self.kind]} {self._range()}"
        if self.choices:
            listed = ", ".join(choice or '""' for choice in self.choices())
            return f"{'one' if self.kind == 'string' else 'a mapping of any'} of {listed}"
        if self.of:
            return f"a mapping of {', '.join(key.name for key in keys_of(self.of))}"
        return EXPECTED[self.kind]

    def _range(self) -> str:
        if self.excludes_lowest:
            return "above 0" + (f", {self.maximum:g} at most" if self.maximum < LARGEST else "")
        bounded = self.maximum <= LARGEST if self.kind == "integer" else self.maximum < LARGEST
        return f"from {self.lowest:g} to {self.maximum:.10g}" if bounded else f"of {self.lowest:g} or more"

    def malformed(self, value: Any) -> str | None:
        """The problem of a value, not of the parts of lists, mappings and sections; None if it is sound."""
        if self.kind == "anything":
            return None
        problem = None
        near = ""
        if type(value) not in PYTHON[self.kind]:  # True is an int to isinstance
            problem = f"is not {EXPECTED[self.kind]}"
        elif self.kind in ("integer", "number"):
            problem = None if self._in_range(value) else "is out of range"
        elif self.kind != "boolean" and len(value) < (self.minimum or 0):
            problem = "is too short"
        elif self.kind == "string" and len(value) > LONGEST_TEXT:
            problem = f"has {len(value):,} characters, more than the {LONGEST_TEXT:,} that are read"
        elif self.kind == "string" and not self._is_among_texts(value):
            problem = "is not known" if self.choices else "is not allowed"
            near = did_you_mean(value, self.choices() if self.choices else ())
        return problem and f"{shown(value)} {problem}; give {self.allowed()}{near}"

    def _is_among_texts(self, text: str) -> bool:
        if not self.choices and not self.pattern:
            return True
        listed = self.choices is not None and (text in self.unmodelled or text in self.choices())
        return listed or bool(self.pattern and re.fullmatch(self.pattern, text))

    def _in_range(self, value: float) -> bool:
        above = value > self.lowest if self.excludes_lowest else value >= self.lowest
        return (above and value <= self.maximum) or value == self.default

    def refused(self, value: Any) -> str | None:
        """Why a well-formed value cannot be predicted, or None."""
        if self.unmodelled and value in self.unmodelled:
            return f"{shown(value)} is not modelled yet; set {self.name} to {self.allowed()}"
        return None


Count: TypeAlias = Annotated[int, Key(minimum=0, maximum=2**63 - 1)]
"""How many of something, or how many bytes; may be 0."""
Share: TypeAlias = Annotated[float, Key(minimum=0, maximum=1)]
Text: TypeAlias = Annotated[str, Key(minimum=1)]
"""A text that is not empty."""


def one_of(*choices: str, pattern: str | None = None) -> Key:
    """The limits of a text that is one of `choices`, or else matches `pattern`."""
    return Key(choices=lambda: choices, pattern=pattern)


@cache
def keys_of(cls: Any) -> tuple[Key, ...]:
    """The keys that a dataclass declares. A field without a default is required; the `_` of `global_` is not in its key."""
    names = vars(sys.modules[cls.__module__])
    keys = []
    for field in fields(cls):
        hint = eval(field.type, names) if isinstance(field.type, str) else field.type  # the declaration's own source
        keys.append(
            replace(
                _key_of(hint),
                name=field.name.rstrip("_"),
                required=field.default is MISSING and field.default_factory is MISSING,
                default=None if field.default is MISSING else field.default,
            )
        )
    return tuple(keys)


def with_texts(keys: Sequence[Key], **limits: Key) -> tuple[Key, ...]:
    """The keys, some of them with choices and patterns of their own, such as names that are known at run time alone."""
    pairs = [(key, limits.get(key.name, key)) for key in keys]
    return tuple(replace(key, choices=limit.choices, pattern=limit.pattern) for key, limit in pairs)


def _key_of(hint: Any) -> Key:
    """The nameless key of a type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        inner = _key_of(arguments[0])
        limits = next((extra for extra in arguments[1:] if isinstance(extra, Key)), inner)
        own = {
            name: getattr(inner, name) for name in ("kind", "nullable", "of", "element", "container", "takes_element")
        }
        return replace(limits, **own, choices=limits.choices or inner.choices)
    if origin in (Union, UnionType):
        others = [each for each in arguments if each is not NoneType]
        keys = [_key_of(each) for each in others]
        key = replace(keys[-1], takes_element=True) if len(keys) == 2 and keys[1].kind == "list" else keys[0]
        return replace(key, nullable=NoneType in arguments)
    if origin is Literal:
        return Key(kind="string", choices=lambda: arguments)
    if origin in (dict, Mapping):
        names = get_args(arguments[0])
        return Key(kind="mapping", element=_key_of(arguments[1]), choices=(lambda: names) if names else None)
    if origin in (list, tuple, Sequence, Collection):
        return Key(kind="list", element=_key_of(arguments[0]), container=list if origin is list else tuple)
    return Key(kind="section", of=hint) if is_dataclass(hint) else Key(kind=KINDS.get(hint, "anything"))  # type: ignore[arg-type]
