"""The columns of a prediction next to its measurement and of figures over many, and the rows that have none: for every validation alike."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from predict.reports.printed import Renderable
from predict.reports.text import Columns, Row, table
from predict.validation.compared import Compared, grouped
from sampling.number_text import Show, duration, durations, percent, signed_percent

NOTHING = "–"
INTERVAL = "90 % interval"
LATENCIES = {"E2E": "e2e", "TTFT": "ttft", "TPOT": "tpot", "E2E p90": "e2e_p90"}
"""Titles of the latencies of a server, and their short names."""
FURTHEST = 10
"""Rows that a table of the furthest off has."""


def itself(one: Compared) -> Compared:
    """The comparison of a row that is one."""
    return one


def beside(
    of: Callable[[Row], Compared], write: Show = duration, among: Callable[[float, float], str] = durations
) -> dict[str, Callable[[Row], str]]:
    """The columns of a comparison, whose values `write` shows and whose bounds `among`."""
    return {
        "predicted": lambda row: write(of(row).predicted.median),
        INTERVAL: lambda row: among(of(row).predicted.low, of(row).predicted.high),
        "measured": lambda row: write(of(row).measured),
        "error": lambda row: signed_percent(of(row).error),
        "inside": lambda row: "yes" if of(row).covered else "NO",
    }


def counts(keys: Mapping[str, str]) -> Columns[Mapping[str, Any]]:
    """Columns of counts by heading, from their keys in a row."""
    return {heading: _count_at(key) for heading, key in keys.items()}


def _count_at(key: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda row: str(row[key])


def shares(keys: Mapping[str, str], *, whole: float = 1.0) -> Columns[Mapping[str, Any]]:
    """Columns of shares by heading, from their keys in a row, which has them as parts of `whole`; a bias has its sign."""
    return {heading: _share_at(key, whole) for heading, key in keys.items()}


def _share_at(key: str, whole: float) -> Callable[[Mapping[str, Any]], str]:
    return lambda row: share(
        None if row[key] is None else row[key] / whole, write=signed_percent if "bias" in key else percent
    )


def share(value: float | None, *, write: Show = percent) -> str:
    """A share as `write` shows it; a dash where there is none."""
    return NOTHING if value is None else write(value)


def furthest(rows: Iterable[Row], of: Callable[[Row], Compared]) -> list[Row]:
    """The rows of the largest errors."""
    return sorted(rows, key=lambda row: -abs(of(row).error))[:FURTHEST]


def refused(title: str, rows: Iterable[tuple[str, str]]) -> list[Renderable]:
    """A table of the reasons why rows have no comparison, each with its first row; nothing without any. `rows` are names and reasons."""
    reasons = sorted(grouped(rows, lambda row: row[1]).values(), key=lambda same: -len(same))
    if not reasons:
        return []
    columns: Columns[list[tuple[str, str]]] = {"first": lambda same: same[0][0], "why": lambda same: same[0][1]}
    return ["", table(title, reasons, {}, {"rows": lambda same: str(len(same))}, columns)]
