"""Measured peaks beside their predictions, as tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.markup import escape

from predict.report.tables import figures_table
from predict.validate.published.memory import GIB, MemoryComparison, summary

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

WORST = 10


def published_memory_text(comparisons: Sequence[MemoryComparison]) -> RenderableType:
    from rich.console import Group

    predicted = [one for one in comparisons if one.predicted_bytes]
    worst = sorted(predicted, key=lambda one: -abs(one.error))[:WORST]
    left_out = [f"{one.row.row_id}: {one.why}" for one in comparisons if not one.predicted_bytes]
    return Group(_summary(predicted), "", _rows(worst), *(["", "not expressible", *left_out] if left_out else []))


def _summary(comparisons: Sequence[MemoryComparison]) -> Table:
    columns = ("rows", "distinct", "mean", "median", "bias", "wrongly FITS")
    table = figures_table("peaks: predicted over measured, less 1; each counter by itself", ("of",), columns)
    for row in summary(comparisons):
        table.add_row(
            escape(" ".join(row["key"])),
            str(row["rows"]),
            str(row["distinct"]),
            f"{row['mean_error_percent']:.1f} %",
            f"{row['median_error_percent']:.1f} %",
            f"{row['bias_percent']:+.1f} %",
            str(row["fits_in_vain"]),
        )
    return table


def _rows(comparisons: Sequence[MemoryComparison]) -> Table:
    names, figures = ("row", "model", "GPUs", "counter"), ("predicted", "measured", "error", "verdict")
    table = figures_table("the furthest off", names, figures)
    for one in comparisons:
        assert one.predicted_bytes is not None
        table.add_row(
            escape(one.row.row_id),
            escape(one.row.text("model")),
            escape(f"{one.row.text('n_gpus')} {one.row.text('gpu')}"),
            escape(one.counter),
            f"{one.predicted_bytes / GIB:.1f} GiB",
            f"{one.measured_bytes / GIB:.1f} GiB",
            f"{one.error:+.1%}",
            one.verdict,
        )
    return table
