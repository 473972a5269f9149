"""The values that the columns of a sample table may hold, so that a damaged file is told before it is learnt from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, get_args

from sampling.call import Phase, State
from sampling.catalogue import registry
from sampling.store.sample import MAY_BE_UNKNOWN

TEXTS: dict[str, tuple[str, ...]] = {
    "quarantine": (),
    "origin": (),
    "ran_kernel": (),
    "phase": get_args(Phase),
    "state": get_args(State),
}
"""Columns of text, with the texts allowed; () for any."""
TIMES = ("time_us", "low_us", "high_us")
COUNTS = ("threads", "busy_ranks", "repeats", "session")
TYPES = {"int": int, "bool": bool, "str": str}


def kind_of(call_name: str, column: str) -> type | None:
    """The type of a column's values; None for one that is no field of the call, which `make_call` reports."""
    if column in TEXTS:
        return str
    if column in (*TIMES, *MAY_BE_UNKNOWN):
        return float
    if column in COUNTS:
        return int
    cls = registry().get(call_name)
    declared = {field.name: str(field.type) for field in fields(cls)} if cls else {}
    return TYPES.get(declared.get(column, ""))


def first_unsound(call_name: str, column: str, cells: Sequence[Any]) -> int | None:
    """The place of the first cell that no sampler writes in a column; None if all are sound."""
    kind = kind_of(call_name, column)
    if kind is None:
        return None
    if kind is float:
        allowed = (int, float, type(None)) if column in MAY_BE_UNKNOWN else (int, float)
        return next((place for place, cell in enumerate(cells) if type(cell) not in allowed), None)
    texts = TEXTS.get(column)
    for place, cell in enumerate(cells):
        if type(cell) is not kind or (type(cell) is int and cell < 0) or (texts and cell not in texts):
            return place
    return None
