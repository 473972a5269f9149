"""Files checked against the dataclass that declares their keys: every fault in one pass, or an instance of the dataclass.

A dataclass may add to its fields:
- `HEADER`, a ClassVar of what the file must say to be of this kind and version, as {"format": "stage-times", "version": 1};
- `contradictions()`, which yields a Fault for each pair of sound values that do not fit together.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, Union, get_args, get_origin

from sampling.errors import ConfigError, UserError
from sampling.files.documents import read_json, read_yaml
from sampling.files.faults import Fault, config_error, did_you_mean, join, key_name, shown
from sampling.number_text import plain

# The keys that a file may hold, declared as the fields of a frozen dataclass.
#
#     @dataclass(frozen=True, kw_only=True, slots=True)
#     class Link:
#         gb_per_s: float                                        # required; a number above 0
#         latency_us: Annotated[float, Key(maximum=1e6)] = 0.0   # 0 or more, since that is the default
#         names: tuple[str, ...] = ()                            # a list of texts
#         sources: Mapping[Literal["a", "b"], str]               # a mapping whose keys are a or b
#         inner: Other | None = None                             # a section of its own, or null
#     where: str | tuple[str, ...]                           # a text, or a list of them
#
# `sampling.files.schema` reads a file of such keys. The same declarations give the JSON Schema and the reference pages.

ValueKind = Literal["integer", "number", "boolean", "string", "list", "mapping", "section", "anything"]
KINDS: Mapping[Any, ValueKind] = {int: "integer", float: "number", bool: "boolean", str: "string"}
PYTHON: Mapping[ValueKind, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "string": (str,),
    "list": (list, tuple),
    "mapping": (dict,),
    "section": (dict,),
}
EXPECTED: Mapping[ValueKind, str] = {
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
    kind: ValueKind = "anything"
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
    """Texts that are allowed in addition to the choices, as a regular expression of the whole text."""
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
    takes_number: bool = False
    """A number may stand there in place of a text, and is kept as the text that YAML has for it."""

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
            number = ", or a number" if self.takes_number else ""
            return f"{'one' if self.kind == 'string' else 'a mapping of any'} of {listed}{number}"
        if self.of:
            return f"a mapping of {', '.join(key.name for key in keys_of(self.of))}"
        return EXPECTED[self.kind]

    def _range(self) -> str:
        if self.excludes_lowest:
            return "above 0" + (f", {plain(self.maximum)} at most" if self.maximum < LARGEST else "")
        bounded = self.maximum <= LARGEST if self.kind == "integer" else self.maximum < LARGEST
        return f"from {plain(self.lowest)} to {plain(self.maximum)}" if bounded else f"of {plain(self.lowest)} or more"

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
    if key.takes_number and type(value) in PYTHON["number"]:
        value = str(value)
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


@cache
def field_docs(cls: type) -> Mapping[str, str]:
    """Field → the text of the docstring that follows it, on one line; the `_` of `global_` is left out as in its key."""
    source = Path(str(sys.modules[cls.__module__].__file__)).read_text(encoding="utf-8")
    body = next(
        node.body for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == cls.__name__
    )
    docs = {}
    for field, after in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(after, ast.Expr):
            docs[field.target.id.rstrip("_")] = " ".join(str(ast.literal_eval(after.value)).split())
    return docs
