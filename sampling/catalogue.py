"""The registry of calls: every operator, cell and collective by its name.

A class registers itself with `@register`; every file in FOLDERS is imported, so no list needs an entry for a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar

from sampling.additions import add, modules_of
from sampling.call import Call
from sampling.errors import SamplesError
from sampling.files.faults import did_you_mean

FOLDERS = ("sampling.collectives", "sampling.operators", "sampling.cells")

CallType = TypeVar("CallType", bound=type[Call])
_REGISTERED: dict[str, type[Call]] = {}


def register(cls: CallType) -> CallType:
    """Class decorator: make a call known by its NAME to the store, the sampler and the regressors."""
    add(_REGISTERED, cls.NAME, cls, "calls")
    return cls


def registry() -> Mapping[str, type[Call]]:
    """Every registered call by its name."""
    for folder in FOLDERS:
        modules_of(folder)
    return _REGISTERED


def make_call(name: str, values: Mapping[str, Any]) -> Call:
    """Rebuild a call from its stored name and fields; numpy scalars become Python's own.

    A field with a default may be missing, since the rows may be older than the field. Raises SamplesError for an unknown name or field.
    """
    known = registry()
    if name not in known:
        near = did_you_mean(name, known)
        raise SamplesError(f"no operator or collective is named {name!r}{near} (known: {', '.join(sorted(known))})")
    cls = known[name]
    wanted = {field.name: field.type for field in fields(cls)}
    unknown = set(values) - set(wanted)
    missing = {field.name for field in fields(cls) if field.default is MISSING} - set(values)
    if unknown or missing:
        raise SamplesError(f"{name}: fields do not match: unknown {sorted(unknown)}, missing {sorted(missing)}")
    casts: dict[str, Callable[[Any], Any]] = {"int": int, "bool": bool, "str": str}
    return cls(**{key: casts[str(wanted[key])](value) for key, value in values.items()})
