"""The five books of a run as tables: each a title, columns with their units, and rows of plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from predict.ledger.books import Ledger
from predict.memory.peak import TERMS
from predict.reports.ledger import ledger_json
from predict.reports.text import call_text

Columns = tuple[tuple[str, str, str], ...]
"""Heading, key and unit (text, number, us, bytes or share) of each column."""
PARTS: Columns = (
    ("part", "part", "text"),
    ("layer", "layer", "text"),
    ("FLOPs required", "required_flops", "number"),
    ("a token", "required_flops_per_token", "number"),
    ("recomputed", "recompute_flops", "number"),
)
OPERATORS: Columns = (
    ("operator", "text", "text"),
    ("phase", "phase", "text"),
    ("count", "count", "number"),
    ("each", "each_us", "us"),
    ("a step", "total_us", "us"),
    ("over its bound", "over_bound", "number"),
    ("source", "source", "text"),
)
MESSAGES: Columns = (
    ("group", "group", "text"),
    ("kind", "kind", "text"),
    ("carries", "carries", "text"),
    ("ranks", "ranks", "number"),
    ("bytes", "size_bytes", "bytes"),
    ("count", "count", "number"),
    ("each", "each_us", "us"),
    ("exposed", "exposed_us", "us"),
    ("hidden", "hidden_us", "us"),
    ("algorithm", "algorithm", "text"),
    ("source", "source", "text"),
)
RANKS_OF_MEMORY: Columns = (("rank", "rank", "number"), *((term, term, "bytes") for term in (*TERMS, "peak")))
BUFFERS: Columns = (
    ("buffer", "name", "text"),
    ("size", "size_bytes", "bytes"),
    ("±", "width_bytes", "bytes"),
    ("source", "source", "text"),
)
RANKS_OF_SCHEDULE: Columns = (
    ("rank", "rank", "number"),
    ("busy", "busy_us", "us"),
    ("filling", "fill_us", "us"),
    ("waiting", "queue_us", "us"),
    ("draining", "drain_us", "us"),
    ("step's end", "end_us", "us"),
)
CONSTANTS: Columns = (
    ("constant", "name", "text"),
    ("value", "value", "number"),
    ("from", "low", "number"),
    ("to", "high", "number"),
    ("moves", "moves", "text"),
    ("source", "source", "text"),
)


def ledgers_view(ledger: Ledger) -> dict[str, list[dict[str, Any]]]:
    """Book → its tables. Times are µs of one GPU of the mean pipeline rank."""
    books = ledger_json(ledger)
    named = (
        {**row, "text": f"{call_text(one.call) if one.call else one.heading}{', again' if one.again else ''}"}
        for row, one in zip(books["compute"]["operators"], ledger.compute.operators, strict=True)
    )
    memory, schedule, calibration = books["memory"], books["schedule"], books["calibration"]
    sources = [{"source": name, "us": time_us} for name, time_us in calibration["by_source_us"].items() if time_us]
    return {
        "compute": [
            table_view("FLOPs that the model requires, by part", PARTS, books["compute"]["parts"]),
            table_view("Operators", OPERATORS, named),
        ],
        "memory": [
            table_view("Pipeline ranks at their peaks", RANKS_OF_MEMORY, memory["ranks"]),
            table_view("Buffers of the fullest rank", BUFFERS, memory["buffers"]),
        ],
        "communication": [table_view("Messages", MESSAGES, books["communication"]["messages"])],
        "schedule": [table_view("Pipeline ranks", RANKS_OF_SCHEDULE, schedule["ranks"])],
        "calibration": [
            table_view("Times by their source", (("source", "source", "text"), ("a step", "us", "us")), sources),
            table_view("Constants that moved the result", CONSTANTS, calibration["constants"]),
        ],
    }


def table_view(title: str, columns: Columns, rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """A table: its title, columns with their units, and rows of plain values."""
    return {
        "title": title,
        "columns": [[heading, unit] for heading, _, unit in columns],
        "rows": [[row[key] for _, key, _ in columns] for row in rows],
    }
