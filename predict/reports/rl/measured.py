"""Real RL steps, alone and beside their predictions, as tables for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from predict.measurement.system_noise import noise_note, noise_notes
from predict.reports.text import figures_table
from sampling.number_text import duration, durations, signed_percent

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from predict.measurement.real_rl import RlMeasurement
    from predict.validation.rl_here import MeasuredRlStep


def rl_measurement_text(measured: RlMeasurement) -> RenderableType:
    """The phases of a real step."""
    from rich.console import Group

    table = figures_table("", ("phase",), ("median", "p10 to p90"))
    for name in measured.phase_times_us:
        found = measured.spread(name)
        table.add_row(name, duration(found.median_us), durations(found.p10_us, found.p90_us))
    lines: list[RenderableType] = [
        f"{escape(measured.run)}: {len(measured.others_shares)} steps on {measured.threads} thread(s), {_clock(measured)}",
        table,
        f"mean reward {measured.rewards[0]:.3f} → {measured.rewards[-1]:.3f}; torch {measured.versions['torch']}",
    ]
    return Group(*lines, *([noise_note(measured.noise)] if measured.noise else ()))


def measured_rl_text(rows: Sequence[MeasuredRlStep], summary: Mapping[str, Any]) -> RenderableType:
    """Every phase of every run, then a line for each phase over all runs."""
    from rich.console import Group

    table = figures_table(
        "", ("run", "phase"), ("predicted", "90 % interval", "measured", "p10 to p90", "error", "inside")
    )
    for row in rows:
        for place, (name, phase) in enumerate(row.phases.items()):
            table.add_row(
                "" if place else escape(row.run),
                name,
                duration(phase.predicted.median_us),
                durations(phase.predicted.low_us, phase.predicted.high_us),
                duration(phase.measured.median_us),
                durations(phase.measured.p10_us, phase.measured.p90_us),
                signed_percent(phase.error),
                "yes" if phase.covered else "NO",
            )
    return Group(
        table,
        "",
        _over_runs(summary),
        "",
        f"times are {_clock(rows[0].measurement)}",
        *noise_notes([(escape(row.run), row.measurement.noise) for row in rows]),
    )


def _over_runs(summary: Mapping[str, Any]) -> Table:
    table = figures_table("", ("all runs",), ("rows", "mean error", "worst", "bias", "in the interval"))
    for name, figures in summary.items():
        shares = (
            f"{figures['mean']:.1%}",
            f"{figures['worst']:.1%}",
            signed_percent(figures["bias"]),
            f"{figures['coverage']:.0%}",
        )
        table.add_row(name, str(figures["rows"]), *shares)
    return table


def _clock(measured: RlMeasurement) -> str:
    return "CPU time of the one thread" if measured.by_cpu_time else "wall time"
