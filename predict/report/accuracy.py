"""The accuracy of the time models, as tables for a terminal and as Markdown, both from the JSON result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType

NOTE = """\
Errors in percent, on rows that the fit, the choice of model and the intervals never saw; *cover* is the share of them in
the 90 % interval. *random*: a fifth of the rows; *shape*: unseen widths, head counts, rank counts, models; *extrapolation*:
the largest. A published table counts alike with every other, collectives among them. *raw*: a random forest and XGBoost on
raw time, the common practice, on the same rows. What being on another device adds to an interval was set by these very
transfers, so their cover is no test of it."""
TARGET_COVERAGE = (0.85, 0.95)
SUMMARY = (
    "measurements",
    "split",
    "tables",
    "rows",
    "mean",
    "median",
    "p90",
    "cover",
    "raw forest",
    "raw XGBoost",
    "fit s",
)
OPERATORS = (
    *("measurements", "operator", "split", "rows", "model", "mean", "p90", "cover", "raw forest", "raw XGBoost"),
    *("fit s", "kB", "1 in ms", "10,000 in s"),
)
TRANSFER = ("from", "to", "work", "rows of its own", "judged", "mean", "p90", "cover")
QUARANTINED = ("measurements", "table", "rows", "")

Rows = Sequence[Sequence[str]]


def accuracy_text(content: Mapping[str, Any]) -> RenderableType:
    from rich.box import SIMPLE
    from rich.console import Group
    from rich.table import Table

    parts: list[RenderableType] = []
    for title, columns, rows in _tables(content):
        table = Table(title=title, title_justify="left", box=SIMPLE)
        for place, column in enumerate(columns):
            table.add_column(column, justify="left" if place < 2 else "right", no_wrap=place < 2)
        for row in rows:
            table.add_row(*row)
        parts.append(table)
    return Group(*parts, NOTE.replace("*", ""))


def accuracy_markdown(content: Mapping[str, Any]) -> str:
    machine = content["machine"]
    lines = [
        "# Accuracy of the time models",
        "",
        f"{content['date']}, {machine['cores']} cores of {machine['processor']}, Python {machine['python']}.",
        "",
        NOTE,
    ]
    for title, columns, rows in _tables(content):
        lines += ["", f"## {title}", "", "| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
        lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _tables(content: Mapping[str, Any]) -> list[tuple[str, Sequence[str], Rows]]:
    tables: list[tuple[str, Sequence[str], Rows]] = [
        ("Means", SUMMARY, [_summary(row) for row in content["summary"]]),
        ("To another device, by its peaks", TRANSFER, [_transfer(row) for row in content["transfer"]]),
        ("Tables and operators", OPERATORS, [_operator(row) for row in content["operators"]]),
        ("Quarantined by the physical gate", QUARANTINED, [_quarantined(row) for row in content["quarantined"]]),
    ]
    return [(title, columns, rows) for title, columns, rows in tables if rows]


def _summary(row: Mapping[str, Any]) -> list[str]:
    return [
        " ".join(row["key"][:-1]),
        row["key"][-1],
        str(row["operators"]),
        f"{row['rows']:,}",
        *(f"{row[name]:.2f}" for name in ("mape", "median", "p90")),
        _cover(row["coverage"]),
        *(_number(row[name]) for name in ("raw_forest", "raw_xgboost", "fit_s")),
    ]


def _transfer(row: Mapping[str, Any]) -> list[str]:
    return [
        row["source"],
        row["target"],
        row["family"],
        str(row["own_rows"] or "none"),
        f"{row['rows']:,}",
        f"{row['mape']:.1f}",
        f"{row['p90']:.1f}",
        _cover(row["coverage"]),
    ]


def _operator(row: Mapping[str, Any]) -> list[str]:
    return [
        " ".join(row["key"][:-1]),
        row["operator"],
        row["key"][-1],
        f"{row['rows']:,}",
        row["candidate"],
        f"{row['mape']:.2f}",
        f"{row['p90']:.1f}",
        _cover(row["coverage"]),
        *(_number(row[name]) for name in ("raw_forest", "raw_xgboost", "fit_s")),
        f"{row['model_bytes'] / 1e3:,.0f}",
        "" if row["predict_1_s"] is None else f"{1e3 * row['predict_1_s']:.2f}",
        "" if row["predict_10000_s"] is None else f"{row['predict_10000_s']:.2f}",
    ]


def _quarantined(row: Mapping[str, Any]) -> list[str]:
    whole = "the whole table" if row["whole_table"] else ""
    return [" ".join(row["group"]), row["operator"], f"{row['rows']:,}", whole]


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def _cover(share: float) -> str:
    """Marked where it is not what a 90 % interval promises."""
    low, high = TARGET_COVERAGE
    return f"{share:.0%}" + ("" if low <= share <= high else " low" if share < low else " wide")
