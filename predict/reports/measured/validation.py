"""A validation as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from predict.measurement.system_noise import noise_notes
from predict.reports.memory import headlines
from predict.reports.text import noted
from predict.validation.here import ValidationRow, summarise
from sampling.files.faults import counted
from sampling.number_text import duration, durations, signed_percent, size

if TYPE_CHECKING:
    from rich.console import RenderableType


def validation_text(
    rows: Sequence[ValidationRow], notes: Sequence[str] = (), misfits: Sequence[str] = ()
) -> RenderableType:
    """The rows and their summary, after `misfits`, why runs do not fit, and `notes` on what the predictions rest on."""
    from rich.console import Group
    from rich.markup import escape
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
            durations(row.predicted.low_us, row.predicted.high_us),
            duration(row.measured_us),
            durations(row.measured_low_us, row.measured_high_us),
            f"{signed_percent(row.error)}{' NOISY' if row.noisy else ''}",
            "yes" if row.covered else "NO",
        )
    summary = summarise(rows)
    return Group(
        *headlines(misfits),
        *noted(notes),
        table,
        "",
        *_devices(rows),
        *noise_notes([(escape(row.run), row.noise) for row in rows]),
        f"{counted(summary.runs, 'run')}: mean error {summary.mean_error:.1%}, worst {summary.worst_error:.1%}, bias {signed_percent(summary.bias)}, "
        f"intervals cover {summary.coverage:.0%}{_dropped(rows)} (errors are predicted over measured, less 1)",
    )


def _dropped(rows: Sequence[ValidationRow]) -> str:
    """The count of dropped steps of the runs that are not noisy as a whole: of the others none can be dropped, and a note says so."""
    quiet = [row for row in rows if not row.noisy]
    return f"; {counted(sum(row.dropped_steps for row in quiet), 'noisy step')} dropped" if quiet else ""


def _devices(rows: Sequence[ValidationRow]) -> Iterator[RenderableType]:
    """A table of what the GPUs reported while they trained, and the error of the predicted peak of memory; none for a CPU."""
    from rich.markup import escape
    from rich.table import Table

    if not any(row.device for row in rows):
        return
    table = Table(box=None, pad_edge=True)
    table.add_column("run")
    table.add_column("experts")
    for name in ("tensors at most", "error", "clock", "power"):
        table.add_column(name, justify="right")
    for row in rows:
        if row.device:
            peak, device = row.device.peak_allocated_bytes, row.device
            table.add_row(
                escape(row.run),
                device.expert_products,
                size(peak) if peak else "",
                signed_percent(row.memory_error) if row.memory_error is not None else "",
                f"{device.clock_mhz:.0f} MHz" if device.clock_mhz is not None else "",
                f"{device.power_w:.0f} W" if device.power_w is not None else "",
            )
    yield table
    yield ""
