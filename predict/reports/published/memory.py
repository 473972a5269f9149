"""Measured peaks beside their predictions, as tables for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from predict.reports.text import figures_table
from predict.validation.memory import MemoryComparison, classes, summary
from sampling.number_text import signed_percent, with_minus
from sampling.units import GIB

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

WORST = 10
NOTHING = "no row states its memory: the columns are peak_mem_gib, or mem_allocated_bytes and mem_max_allocated_bytes"


def published_memory_text(comparisons: Sequence[MemoryComparison]) -> RenderableType:
    from rich.console import Group

    if not comparisons:
        return NOTHING
    predicted = [one for one in comparisons if one.predicted_bytes]
    worst = sorted(predicted, key=lambda one: -abs(one.error))[:WORST]
    left_out = [f"{one.row.row_id}: {one.why}" for one in comparisons if not one.predicted_bytes]
    return Group(
        _figures("memory: predicted over measured, less 1; each counter by itself", list(summary(comparisons))),
        "",
        _rows(worst),
        *(["", "not expressible", *dict.fromkeys(map(escape, left_out))] if left_out else []),
        "",
        _figures("by class: figure, counter and size; a family of alike runs counts once", classes(comparisons)),
    )


def _figures(title: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    columns = ("rows", "families", "distinct", "mean", "median", "bias", "wrongly FITS")
    table = figures_table(title, ("of",), columns)
    for row in rows:
        table.add_row(
            escape(" ".join(row["key"])),
            str(row["rows"]),
            str(row["families"]),
            str(row["distinct"]),
            f"{row['mean_error_percent']:.1f} %",
            f"{row['median_error_percent']:.1f} %",
            with_minus(f"{row['bias_percent']:+.1f} %"),
            str(row["fits_in_vain"]),
        )
    return table


def _rows(comparisons: Sequence[MemoryComparison]) -> Table:
    names, figures = ("row", "model", "GPUs", "figure", "counter"), ("predicted", "measured", "error", "verdict")
    table = figures_table("the furthest off", names, figures)
    for one in comparisons:
        assert one.predicted_bytes is not None
        table.add_row(
            escape(one.row.row_id),
            escape(one.row.text("model") or one.row.text("test_case")),
            escape(f"{one.row.text('n_gpus')} {one.row.text('gpu')}"),
            one.figure,
            escape(one.counter),
            f"{one.predicted_bytes / GIB:.1f} GiB",
            f"{one.measured_bytes / GIB:.1f} GiB",
            signed_percent(one.error),
            one.verdict,
        )
    return table
