"""Measured peaks beside their predictions, as tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.markup import escape

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


def _table(title: str) -> Table:
    from rich.table import Table

    return Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=True)


def _summary(comparisons: Sequence[MemoryComparison]) -> Table:
    table = _table("peaks: predicted over measured, less 1; each counter by itself")
    table.add_column("of")
    for name in ("rows", "distinct", "mean", "median", "bias", "wrongly FITS"):
        table.add_column(name, justify="right")
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
    table = _table("the furthest off")
    for name in ("row", "model", "GPUs", "counter"):
        table.add_column(name)
    for name in ("predicted", "measured", "error", "verdict"):
        table.add_column(name, justify="right")
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
