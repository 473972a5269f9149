"""Published runs beside their predictions, as tables for a terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from predict.reports.text import figures_table
from predict.run.calibration_terms import Posterior
from predict.validation.published import Comparison, configurations
from predict.validation.published_scores import PairOrder, beside_constant_mfu, classes, summary
from sampling.files.faults import counted
from sampling.number_text import duration, durations, signed_percent, with_minus

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

TITLE = "errors: predicted over measured, less 1; repeats of one configuration count once, by their median"
WORST = 10
MOST_ROWS = 60
"""Rows above which only the summary and the worst are printed; `--json` has all of them."""


def published_text(comparisons: Sequence[Comparison], calibration: Posterior | None = None) -> RenderableType:
    from rich.console import Group

    predicted = [one for one in comparisons if one.predicted]
    once = configurations(comparisons)
    parts: list[RenderableType] = []
    if 0 < len(predicted) <= MOST_ROWS:
        parts += [_rows("predicted beside measured", predicted), ""]
    if once:
        parts += [_figures(TITLE, list(summary(once))), "", *_beside_constant_mfu(once), ""]
    if len(once) > WORST:
        worst = sorted(once, key=lambda one: -abs(one.error))[:WORST]
        parts += [_rows(f"the {WORST} furthest off, and what is not known of them", worst, reasons=True), ""]
    parts += [*_left_out(comparisons)]
    if calibration:
        parts += [_calibration(calibration), ""]
    if once:
        parts.append(_figures("by class: what is modelled, and how much of the run its row states", classes(once)))
    return Group(*parts)


def _rows(title: str, comparisons: Sequence[Comparison], *, reasons: bool = False) -> Table:
    figures = ("predicted", "90 % interval", "measured", "error", "inside")
    table = figures_table(title, ("row", "model", "GPUs"), figures)
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
            durations(interval.low_us, interval.high_us),
            duration(one.measured_us),
            signed_percent(one.error),
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


def _figures(title: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    columns = ("rows", "measured", "mean", "median", "bias", "in 90 % interval", "log half-width")
    table = figures_table(title, ("of",), columns)
    for row in rows:
        if row["rows"]:
            table.add_row(
                escape(" ".join(row["key"])),
                str(row["rows"]),
                str(row["measurements"]),
                f"{row['mean_error_percent']:.1f} %",
                f"{row['median_error_percent']:.1f} %",
                with_minus(f"{row['bias_percent']:+.1f} %"),
                f"{row['coverage']:.0%}",
                f"{row['log_half_width']:.2f}",
            )
    return table


def _beside_constant_mfu(once: Sequence[Comparison]) -> list[RenderableType]:
    results = beside_constant_mfu(once)
    judged = [one for one in results if not math.isnan(one.constant_mfu_error)]
    title = "beside a constant MFU: each run at the median measured MFU of its source's other runs"
    order = ("pairs", "in order", "by FLOPs", "same work", "in order", "by FLOPs")
    table = figures_table(title, ("source",), ("rows", "mean error", "constant MFU", *order))
    for one in judged:
        table.add_row(
            escape(one.source),
            str(one.configurations),
            f"{one.error:.1%}" + ("" if one.better else " (worse)"),
            f"{one.constant_mfu_error:.1%}",
            *_order_cells(one.order),
            *_order_cells(one.order_of_one_work),
        )
    wins = sum(one.better for one in judged)
    return [
        table,
        f"The prediction is nearer than a constant MFU in {wins} of {counted(len(judged), 'source')}. Pairs are more than "
        "5 % apart; a constant MFU orders them by FLOPs over peak. Pairs of the same work have model, batch and GPUs in "
        "common and differ in plan or settings.",
    ]


def _order_cells(order: PairOrder) -> tuple[str, str, str]:
    if not order.pairs:
        return "0", "", ""
    return str(order.pairs), f"{order.ours / order.pairs:.0%}", f"{order.constant_mfu / order.pairs:.0%}"


def _left_out(comparisons: Sequence[Comparison]) -> list[RenderableType]:
    """The count of rows that could not be expressed, by reason."""
    reasons: dict[str, list[str]] = {}
    for one in comparisons:
        if not one.predicted:
            reasons.setdefault(one.why, []).append(one.row.row_id)
    if not reasons:
        return []
    table = figures_table("not expressible", (), ("rows",))
    table.add_column("first")
    table.add_column("why")
    for why, rows in sorted(reasons.items(), key=lambda item: -len(item[1])):
        table.add_row(str(len(rows)), escape(rows[0]), escape(why))
    return [table, ""]


def _calibration(posterior: Posterior) -> str:
    terms = ", ".join(f"{name} × {value:.2f}" for name, value in posterior.terms.moved.items())
    left_out = posterior.left_out_percent
    told = "" if left_out is None else f"; each {left_out:.1f} % off as predicted from the others"
    return f"calibrated on {len(posterior.runs)} rows{told}: {terms}"
