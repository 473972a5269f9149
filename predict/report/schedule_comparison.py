"""Schedules held against each other, for a reader in a terminal and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from predict.report.schedule_text import timeline_text
from predict.report.units import Show
from predict.schedules.compare import Outcome, reasons

if TYPE_CHECKING:
    from rich.console import RenderableType


def comparison_json(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Stable and versioned; times in the unit of the stage times, null where a schedule cannot run the counts.

    `copies` is how many copies of the model it runs; a chunk of it, and of its peak, is as many times as large. `cost` is
    the time it is ranked by: makespan × copies, or with a config the whole step.
    """
    return {"version": 1, "schedules": [_outcome_json(outcome) for outcome in outcomes]}


def _outcome_json(outcome: Outcome) -> dict[str, Any]:
    line = outcome.timeline
    return {
        "name": outcome.name,
        "makespan": line and line.makespan,
        "span": line and float(line.span.max()),
        "bubble_fraction": line and line.bubble_fraction,
        "span_bubble_fraction": line and line.span_bubble_fraction,
        "peak_chunks": list(outcome.peak_chunks),
        "copies": outcome.copies,
        "cost": outcome.cost if line else None,
        "valid": outcome.valid,
        "why_not": outcome.why_not,
    }


def comparison_text(outcomes: Sequence[Outcome], *, head: str, show: Show, width: int) -> RenderableType:
    """The table, the picture of the first, and why the others are no choice. `show` writes a time."""
    from rich.console import Group

    first = outcomes[0]
    parts: list[RenderableType] = [f"[bold]{head}[/]", ""]
    timed = [outcome for outcome in outcomes if outcome.timeline]
    if timed:
        parts += [_table(timed, show), ""]
    if any(outcome.copies > 1 for outcome in timed):
        parts += [
            "  * two copies of the model: a chunk is twice as large, so its peak counts double, and its makespan where all",
            "    schedules were given the same times for a chunk",
            "",
        ]
    if first.timeline and first.valid:
        parts += [f"  [bold]{first.name}[/]", timeline_text(first.timeline, width=width, show=show)]
    refused = reasons(outcomes)
    if refused:
        listed = (f"  [dim]{', '.join(names)}[/]  {why_not}" for why_not, names in refused.items())
        parts += ["", "  no choice here", *listed]
    return Group(*parts)


def _table(outcomes: Sequence[Outcome], show: Show) -> RenderableType:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 2))
    table.add_column("schedule")
    for name in ("makespan", "against best", "longest span", "bubble", "of the span", "peak chunks"):
        table.add_column(name, justify="right")
    best = outcomes[0].cost
    for outcome in outcomes:
        line = outcome.timeline
        assert line is not None
        peaks = sorted(set(outcome.peak_chunks))
        table.add_row(
            outcome.name + ("*" if outcome.copies > 1 else ""),
            show(line.makespan),
            f"{outcome.cost / best - 1:+.1%}" if best else "",
            show(float(line.span.max())),
            f"{line.bubble_fraction:.1%}",
            f"{line.span_bubble_fraction:.1%}",
            str(peaks[0]) if len(peaks) == 1 else f"{peaks[0]}–{peaks[-1]}",
            style=None if outcome.valid else "dim",
        )
    return table
