"""Published runs beside their predictions, as tables for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from predict.report.units import duration
from predict.validate.published.comparison import Comparison, summary

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

WORST = 10
MOST_ROWS = 60
"""Rows above which only the summary and the worst are printed; `--json` has all of them."""


def published_text(comparisons: Sequence[Comparison], calibration: Mapping[str, Any] | None = None) -> RenderableType:
    from rich.console import Group

    predicted = [one for one in comparisons if one.predicted]
    parts: list[RenderableType] = []
    if len(predicted) <= MOST_ROWS:
        parts += [_rows("predicted beside measured", predicted), ""]
    parts += [_summary(predicted), ""]
    if len(predicted) > WORST:
        worst = sorted(predicted, key=lambda one: -abs(one.error))[:WORST]
        parts += [_rows(f"the {WORST} furthest off, and what is not known of them", worst, reasons=True), ""]
    parts += [*_left_out(comparisons)]
    if calibration:
        parts.append(_calibration(calibration))
    return Group(*parts)


def _table(title: str) -> Table:
    from rich.table import Table

    return Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=True)


def _rows(title: str, comparisons: Sequence[Comparison], *, reasons: bool = False) -> Table:
    table = _table(title)
    for name in ("row", "model", "GPUs"):
        table.add_column(name)
    for name in ("predicted", "90 % interval", "measured", "error", "inside"):
        table.add_column(name, justify="right")
    if reasons:
        table.add_column("why it may be")
    for one in comparisons:
        assert one.predicted is not None
        interval = one.predicted
        cells = [
            one.row.row_id,
            one.row.text("model"),
            f"{one.row.text('n_gpus')} {one.row.text('gpu')}",
            duration(interval.median_us),
            f"{duration(interval.low_us)} to {duration(interval.high_us)}",
            duration(one.measured_us),
            f"{one.error:+.1%}",
            "yes" if one.covered else "NO",
        ]
        table.add_row(*map(escape, cells), *([escape(_reason(one))] if reasons else []))
    return table


def _reason(one: Comparison) -> str:
    """The features of the row that are unknown, or known to vary."""
    row = one.row
    causes = [one.why] if one.why else []
    if row.number("experts"):
        causes.append("dispatcher, graphs and imbalance of a mixture")
    if "fp8" in row.text("precision").lower() and not any(
        name in row.text("precision").lower() for name in ("mx", "cs")
    ):
        causes.append("fp8 recipe not published")
    if row.text("task") not in ("", "pretrain"):
        causes.append(f"task: {row.text('task')}")
    if row.text("notes"):
        causes.append(row.text("notes")[:60])
    return "; ".join(causes)


def _summary(comparisons: Sequence[Comparison]) -> Table:
    table = _table("errors: predicted over measured, less 1")
    table.add_column("of")
    for name in ("rows", "mean", "median", "bias", "in 90 % interval"):
        table.add_column(name, justify="right")
    for row in summary(comparisons):
        if row["rows"]:
            table.add_row(
                escape(" ".join(row["key"])),
                str(row["rows"]),
                f"{row['mean_error_percent']:.1f} %",
                f"{row['median_error_percent']:.1f} %",
                f"{row['bias_percent']:+.1f} %",
                f"{row['coverage']:.0%}",
            )
    return table


def _left_out(comparisons: Sequence[Comparison]) -> list[RenderableType]:
    """How many rows could not be expressed, by reason."""
    reasons: dict[str, list[str]] = {}
    for one in comparisons:
        if not one.predicted:
            reasons.setdefault(one.why, []).append(one.row.row_id)
    if not reasons:
        return []
    table = _table("not expressible")
    table.add_column("rows", justify="right")
    table.add_column("first")
    table.add_column("why")
    for why, rows in sorted(reasons.items(), key=lambda item: -len(item[1])):
        table.add_row(str(len(rows)), escape(rows[0]), escape(why))
    return [table, ""]


def _calibration(content: Mapping[str, Any]) -> str:
    terms = ", ".join(f"{name} {value:.2f}" for name, value in content["terms"].items())
    fit = content["fit"]
    return (
        f"calibrated on {fit['rows']} rows: {terms}\n"
        f"mean error {fit['error_before']:.1f} % without, {fit['error_after']:.1f} % with, "
        f"{fit['error_left_out']:.1f} % with terms fitted to other sources (or halves)"
    )
