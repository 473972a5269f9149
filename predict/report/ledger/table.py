"""The ledger as a long table: one number per row, for spreadsheets and data frames."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from predict.ledger.books import Ledger
from predict.report.ledger.json import ledger_json

COLUMNS = ("run", "book", "entry", "quantity", "value")
ENTRY: Mapping[str, tuple[str, ...]] = {
    "parts": ("part", "layer"),
    "operators": ("heading", "operator", "phase", "recompute", "fields"),
    "messages": ("heading", "kind", "group", "carries", "size_bytes", "ranks"),
    "ranks": ("rank",),
    "layers": ("unit", "recompute"),
    "buffers": ("name",),
    "constants": ("name",),
}
"""List of a book → the keys that name an entry; its other numbers are a row each."""
BOOKS = ("account_us", "compute", "memory", "communication", "schedule", "calibration", "mfu", "parameters")


def ledger_rows(ledger: Ledger) -> list[dict[str, Any]]:
    """The numbers of all books, in the order of the JSON and under its names."""
    content = ledger_json(ledger)
    return [
        {"run": content["run"], "book": book, "entry": entry, "quantity": quantity, "value": value}
        for book in BOOKS
        for entry, quantity, value in numbers(content[book], ENTRY)
    ]


def numbers(content: Mapping[str, Any], names: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str, float]]:
    """Entry, quantity and value of every number of a book; `names` are the keys that name the entries of its lists."""
    for key, value in content.items():
        if isinstance(value, list):
            for each in value:
                if not isinstance(each, Mapping):
                    continue  # a word
                named = [_named(name, each[name]) for name in names[key]]
                rest = {name: inner for name, inner in each.items() if name not in names[key]}
                entry = " ".join([key, *filter(None, named)])
                yield from ((entry, quantity, number) for quantity, number in _flat(rest))
        else:
            yield from (("", quantity, number) for quantity, number in _flat({key: value}))


def _named(key: str, value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{name}={inner}" for name, inner in value.items() if inner not in (False, 0, ""))
    if isinstance(value, bool):
        return key if value else ""
    return f"{key}={value}" if isinstance(value, int | float) else str(value or "")


def _flat(content: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The numbers of nested mappings, under their keys joined by points."""
    for key, value in content.items():
        if isinstance(value, Mapping):
            yield from ((f"{key}.{inner}", number) for inner, number in _flat(value))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield key, value
