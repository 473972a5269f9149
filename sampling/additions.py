"""Additions that are found by themselves: every module of their package is imported, and two of one name are an error."""

import importlib
import pkgutil
from functools import cache
from types import ModuleType
from typing import Any


@cache
def modules_of(package: str) -> tuple[ModuleType, ...]:
    """The modules of a package in the order of their names, imported."""
    path = importlib.import_module(package).__path__
    return tuple(importlib.import_module(f"{package}.{module.name}") for module in pkgutil.iter_modules(path))


def add(known: dict[Any, Any], name: object, value: object, what: str) -> None:
    """Put an addition under its name. ValueError, which says `what` they are, if another has it."""
    if name in known:
        raise ValueError(f"two {what} are named {name!r}: {known[name]} and {value}")
    known[name] = value
