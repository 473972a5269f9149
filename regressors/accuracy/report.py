"""The accuracy report: scores as JSON, and that JSON as tables for a terminal or Markdown.

`python -m regressors` writes one about the models it has just trained, `predict validate samples` one about all tables.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from regressors.accuracy.score import Score
from regressors.dataset.splits import SPLITS
from regressors.fitting.settings_search import Best
from regressors.models.tuned_trees import in_words
from sampling.number_text import percent, whole_percent

if TYPE_CHECKING:
    from rich.console import RenderableType

VERSION = 2
NOTE = """\
Errors in percent on held-out rows: their mean, median and 90th percentile; *cover* is the share of rows inside the 90 %
interval, *low* below 85 % (intervals too narrow), *wide* above 95 % (wider than they need be). *random*: a fifth of the rows; *shape*: shapes, or in published tables widths, head counts, rank counts and models,
that the fit never saw; *extrapolation*: the largest shapes. *tuned forest*, *tuned XGBoost*: trees on the time or its logarithm,
with settings that a search prefers, used everywhere: the common practice, on the same rows. *by time*: the mean in which a table weighs as much as its rows take, since long calls make a step.
A table with few held-out rows says nothing: it is in no mean."""
FEW_ROWS = 6
"""Held-out rows below which one unlucky row is the mean."""
TARGET_COVERAGE = (0.85, 0.95)
EMPTY_CELLS = """\
An empty cell was not measured: trees are fitted where there are enough shapes to hold out and few enough rows to be quick, *cover* of
models just trained needs three folds of unseen shapes, and predictions are timed once per operator, in its *random* row."""
AVERAGED = ("mape", "median", "p90", "coverage", "raw_forest", "raw_xgboost")
TOTALLED = ("rows", "fit_s")

Row = Mapping[str, Any]
Cell = Callable[[Row], str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Scored:
    """One operator's scores by split, and the settings of trees that a search found. Operators of one `group` are averaged."""

    group: tuple[str, ...]
    operator: str
    scores: Mapping[str, Score]
    searched: Mapping[str, Best] = field(default_factory=dict)


def as_json(
    scored: Sequence[Scored],
    *,
    title: str,
    note: str,
    date: str,
    transfers: Sequence[Row] = (),
    quarantined: Sequence[Row] = (),
) -> dict[str, Any]:
    """`summary`: means over a group's operators, one row per group and split; `operators`: each of them; `searches`: what the search of
    each operator's trees found."""
    return {
        "version": VERSION,
        "title": title,
        "note": note,
        "date": date,
        "machine": {"processor": platform.machine(), "cores": os.cpu_count(), "python": platform.python_version()},
        "summary": summaries(scored),
        "transfer": list(transfers),
        "operators": [
            {"group": list(of.group), "operator": of.operator, "split": split} | asdict(score)
            for of in scored
            for split, score in of.scores.items()
        ],
        "searches": [
            {"group": list(of.group), "operator": of.operator, "kind": kind}
            | {"settings": in_words(best.settings), "log_error": best.log_error, "judged": best.judged}
            for of in scored
            for kind, best in of.searched.items()
        ],
        "quarantined": [dict(row) for row in quarantined if row["rows"]],
    }


def quarantine_row(group: Sequence[str], operator: str, rows: int, *, why: str) -> Row:
    return {"group": list(group), "operator": operator, "rows": rows, "why": why}


def summaries(scored: Sequence[Scored]) -> list[dict[str, Any]]:
    """Means over the operators of each group, each counting the same, and by the time of their rows; rows and seconds of fitting
    are sums.

    Operators of few rows are counted, and in no mean. Where tuned trees were fitted to some operators only, the means are over those,
    so that they compare.
    """
    rows = []
    for group in dict.fromkeys(of.group for of in scored):
        for split in SPLITS:
            found = [of.scores[split] for of in scored if of.group == group and split in of.scores]
            judged = [score for score in found if score.rows >= FEW_ROWS]
            scores = [score for score in judged if score.raw_xgboost is not None] or judged
            if found:
                rows.append(
                    {
                        "group": list(group),
                        "split": split,
                        "operators": len(scores),
                        "few_rows": len(found) - len(judged),
                    }
                    | {"mape_by_time": _by_time(scores)}
                    | {name: _known(scores, name, np.mean) for name in AVERAGED}
                    | {name: _known(scores, name, np.sum) for name in TOTALLED}
                )
    return rows


def _known(scores: Sequence[Score], name: str, combine: Callable[[list[float]], Any]) -> float | None:
    known = [value for score in scores if (value := getattr(score, name)) is not None]
    return combine(known).item() if known else None


def _by_time(scores: Sequence[Score]) -> float | None:
    total_us = sum(score.time_us for score in scores)
    return sum(score.mape * score.time_us for score in scores) / total_us if total_us else None


def as_text(content: Row) -> RenderableType:
    """The tables for a terminal, the means last, where they stay in view."""
    from rich.box import SIMPLE
    from rich.console import Group
    from rich.table import Table

    tables: list[RenderableType] = []
    for title, columns, rows in reversed(_tables(content)):
        table = Table(title=title, title_justify="left", box=SIMPLE)
        for place, column in enumerate(columns):
            table.add_column(column, justify="left" if place < 2 else "right", no_wrap=place < 2)
        for row in rows:
            table.add_row(*row)
        tables.append(table)
    return Group(*tables, _notes(content).replace("*", ""))


def one_line(content: Row) -> str:
    """The number of time models, and the mean of their errors on shapes that they have not seen, where there are enough rows."""
    count = len({row["operator"] for row in content["operators"]})
    unseen = [row["mape"] for row in content["summary"] if row["split"] == "shape" and row["mape"] is not None]
    error = (
        f"mean error {percent(float(np.mean(unseen)) / 100)} on unseen shapes"
        if unseen
        else "too few rows to judge their error"
    )
    return f"{count} time models fitted, {error}: tables"


def as_markdown(content: Row) -> str:
    machine = content["machine"]
    lines = [
        f"# {content['title']}",
        "",
        f"{content['date']}, {machine['cores']} cores of {machine['processor']}, Python {machine['python']}.",
        "",
        _notes(content),
    ]
    for title, columns, rows in _tables(content):
        lines += ["", f"## {title}", "", "| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
        lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _notes(content: Row) -> str:
    return f"{NOTE}\n\n{EMPTY_CELLS}\n\n{content['note']}"


def _tables(content: Row) -> list[tuple[str, list[str], list[list[str]]]]:
    """Title, columns and rows of each table that has rows, without the columns that are empty in all of them."""
    tables = []
    for title, key, cells in (
        ("Means", "summary", SUMMARY),
        ("To another device, by its peaks", "transfer", TRANSFER),
        ("Operators", "operators", OPERATORS),
        ("Settings of trees, by search", "searches", SEARCHES),
        ("Rows set aside, from which nothing is learnt", "quarantined", QUARANTINED),
    ):
        rows = [[cell(row) for cell in cells.values()] for row in content[key]]
        filled = [place for place in range(len(cells)) if any(row[place] for row in rows)]
        if rows:
            columns = list(cells)
            tables.append(
                (title, [columns[place] for place in filled], [[row[place] for place in filled] for row in rows])
            )
    return tables


def _number(name: str, form: str = ".1f", scale: float = 1.0) -> Cell:
    return lambda row: "" if row[name] is None else f"{scale * row[name]:{form}}"


def _cover(row: Row) -> str:
    """The share inside the 90 % interval, marked where the interval is too narrow or too wide."""
    share = row["coverage"]
    if share is None:
        return ""
    low, high = TARGET_COVERAGE
    return whole_percent(share) + ("" if low <= share <= high else " low" if share < low else " wide")


def _group(row: Row) -> str:
    return " ".join(row["group"])


_RAW: Mapping[str, Cell] = {
    "cover": _cover,
    "tuned forest": _number("raw_forest"),
    "tuned XGBoost": _number("raw_xgboost"),
    "fit s": _number("fit_s"),
}
SUMMARY: Mapping[str, Cell] = {
    "measurements": _group,
    "split": lambda row: row["split"],
    "operators": lambda row: str(row["operators"]),
    "of few rows": lambda row: str(row["few_rows"] or ""),
    "rows": _number("rows", ",.0f"),
    "by time": _number("mape_by_time", ".2f"),
    "mean": _number("mape", ".2f"),
    "median": _number("median", ".2f"),
    "p90": _number("p90", ".2f"),
    **_RAW,
}
OPERATORS: Mapping[str, Cell] = {
    "measurements": _group,
    "operator": lambda row: row["operator"],
    "split": lambda row: row["split"],
    "rows": _number("rows", ",.0f"),
    "model": lambda row: row["candidate"],
    "mean": lambda row: "few rows" if row["rows"] < FEW_ROWS else _number("mape")(row),
    "p90": _number("p90"),
    **_RAW,
    "kB": _number("model_bytes", ",.0f", 1e-3),
    "1 in ms": _number("predict_1_s", ".2f", 1e3),
    "10,000 in s": _number("predict_10000_s", ".2f"),
}
TRANSFER: Mapping[str, Cell] = {
    "from": lambda row: row["source"],
    "to": lambda row: row["target"],
    "work": lambda row: row["family"],
    "rows of its own": lambda row: str(row["own_rows"] or "none"),
    "judged": _number("rows", ",.0f"),
    "mean": _number("mape"),
    "p90": _number("p90"),
    "cover": _cover,
    "± in log time for 90%": _number("log_error_90", ".2f"),
}
SEARCHES: Mapping[str, Cell] = {
    "measurements": _group,
    "operator": lambda row: row["operator"],
    "trees": lambda row: row["kind"],
    "settings": lambda row: row["settings"],
    "error in log time": _number("log_error", ".3f"),
    "settings judged": lambda row: str(row["judged"] or "none: few rows"),
}
QUARANTINED: Mapping[str, Cell] = {
    "measurements": _group,
    "operator": lambda row: row["operator"],
    "rows": _number("rows", ",.0f"),
    "why": lambda row: row["why"],
}
