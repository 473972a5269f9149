"""A validation as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.markup import escape

from predict.measure.system_noise import noise_note
from predict.report.feasibility import headlines
from predict.report.provenance_text import noted
from predict.report.units import counted, duration
from predict.validate.validation_rows import ValidationRow, summarise

if TYPE_CHECKING:
    from rich.console import RenderableType


def validation_text(
    rows: Sequence[ValidationRow], notes: Sequence[str] = (), misfits: Sequence[str] = ()
) -> RenderableType:
    """The rows and their summary, after `misfits`, why runs do not fit, and `notes` on what the predictions rest on."""
    from rich.console import Group
    from rich.table import Table

    table = Table(box=None, pad_edge=True)
    table.add_column("run")
    table.add_column("plan")
    for name in ("predicted", "90 % interval", "measured", "p10 to p90", "error", "inside"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            escape(row.run),
            escape(row.plan),
            duration(row.predicted.median_us),
            f"{duration(row.predicted.low_us)} to {duration(row.predicted.high_us)}",
            duration(row.measured_us),
            f"{duration(row.measured_low_us)} to {duration(row.measured_high_us)}",
            f"{row.error:+.1%}{' NOISY' if row.noisy else ''}",
            "yes" if row.covered else "NO",
        )
    summary = summarise(rows)
    disturbed = ", ".join(escape(row.run) for row in rows if row.noisy)
    return Group(
        *headlines(misfits),
        *noted(notes),
        table,
        "",
        *([noise_note(f"most steps of {disturbed}")] if disturbed else ()),
        f"{counted(summary.runs, 'run')}: mean error {summary.mean_error:.1%}, worst {summary.worst_error:.1%}, bias {summary.bias:+.1%}, "
        f"intervals cover {summary.coverage:.0%}; {counted(summary.dropped_steps, 'noisy step')} dropped",
    )
