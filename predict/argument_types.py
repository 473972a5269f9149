"""Types of the arguments of public functions: one of a wrong type is a UserError with the types that it may have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from numbers import Integral, Real
from os import PathLike
from typing import ParamSpec, TypeVar

from sampling.errors import UserError
from sampling.files.faults import shown

Given = ParamSpec("Given")
Made = TypeVar("Made")
Fits = Callable[[object], bool]


def _is_number(kind: type) -> Fits:
    return lambda value: isinstance(value, kind) and not isinstance(value, bool)


def _is_list_of(*kinds: type) -> Fits:
    return lambda value: (
        isinstance(value, Sequence) and not isinstance(value, str) and all(isinstance(each, kinds) for each in value)
    )


def _is_made(name: str) -> Fits:
    """Whether a value is of the class of that name, whose module need not be imported."""
    return lambda value: type(value).__name__ == name


TYPES: Mapping[str, tuple[Fits, str]] = {
    "None": (lambda value: value is None, "None"),
    "bool": (lambda value: isinstance(value, bool), "True or False"),
    "int": (_is_number(Integral), "a whole number"),
    "float": (_is_number(Real), "a number"),
    "str": (lambda value: isinstance(value, str), "text"),
    "Path": (lambda value: isinstance(value, PathLike), "a path"),
    "Sequence[str]": (_is_list_of(str), "a list of texts"),
    "Sequence[float]": (_is_list_of(Real), "a list of numbers"),
    "Sequence[Path | str]": (_is_list_of(str, PathLike), "a list of paths"),
    "Mapping[str, float]": (lambda value: isinstance(value, Mapping), "a mapping of names to numbers"),
    "Prices": (lambda value: hasattr(value, "provenance"), "prices, as predict.prices.open.open_prices opens them"),
    "Benchmark": (_is_made("Benchmark"), "a benchmark, as predict.benchmark makes it"),
    "TrainingRun": (_is_made("TrainingRun"), "a run, as predict.load makes it"),
    "Prediction": (_is_made("Prediction"), "a prediction, as predict.one_batch makes it"),
}
"""Annotation → the check of a value, and what passes it, in words. Values of other types are checked where they are read."""
SETTINGS = {_is_list_of(str): "a list of KEY=VALUE, for example ['plan.tp=2']"}


def checked(function: Callable[Given, Made]) -> Callable[Given, Made]:
    """The function, which reports all its arguments of a wrong type in one UserError."""
    alternatives = {name: _alternatives(hint) for name, hint in function.__annotations__.items()}
    if "overrides" in alternatives:
        alternatives["overrides"] = SETTINGS
    code = function.__code__
    positional = code.co_varnames[: code.co_argcount]
    rest = code.co_varnames[code.co_argcount + code.co_kwonlyargcount :][:1]

    @wraps(function)
    def called(*given: Given.args, **by_name: Given.kwargs) -> Made:
        further = given[len(positional) :]
        values = [*zip(positional, given, strict=False), *((name, each) for name in rest for each in further)]
        wrong = [
            f"{function.__name__}: {name}: {shown(value)} is not allowed; give {' or '.join(allowed.values())}"
            for name, value in (*values, *by_name.items())
            if (allowed := alternatives.get(name)) and not any(fits(value) for fits in allowed)
        ]
        if wrong:
            raise UserError("\n".join(wrong))
        return function(*given, **by_name)

    return called


def _alternatives(hint: str) -> dict[Fits, str]:
    """The checks of an annotation, with their words; none where one of its types is not among TYPES."""
    names = [hint] if hint in TYPES else hint.split(" | ")
    return dict(TYPES[name] for name in names) if all(name in TYPES for name in names) else {}
