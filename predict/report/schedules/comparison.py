"""Schedules held against each other, for a reader in a terminal and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from predict.report.schedules.text import timeline_text
from predict.schedules.compare import Outcome, reasons
from predict.schedules.engine.timeline import Timeline
from sampling.number_text import Show, signed_percent, size

if TYPE_CHECKING:
    from rich.console import RenderableType

MARGIN = 2
"""Blanks on either side of a column."""


def comparison_json(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Stable and versioned; times in the unit of the stage times, null where a schedule cannot run the counts.

    `peak_chunks` are chunk activations in the schedule's own account, released at W (BW where the backward is whole) but
    for zb-auto, `peak_chunks_until_w` those all held until W, null where that is the same. `copies` is how many copies of the model it runs; a
    chunk of it, and of its peak, is as many times as large. `cost` is the time it is ranked by: makespan × copies, or
    with a config the whole step. `peak_bytes` is null where the bytes of a chunk's activations are not known; `device_bytes`,
    the expected peak of the fullest device, without a config.
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
        "peak_chunks_until_w": outcome.peak_chunks_until_w and list(outcome.peak_chunks_until_w),
        "peak_bytes": outcome.peak_bytes and list(outcome.peak_bytes),
        "device_bytes": outcome.device_bytes,
        "copies": outcome.copies,
        "cost": outcome.cost if line else None,
        "valid": outcome.valid,
        "why_not": outcome.why_not,
    }


def comparison_text(outcomes: Sequence[Outcome], *, head: str, show: Show, width: int) -> RenderableType:
    """The table, the picture of the best schedule, and why others are not a choice. `show` writes a time."""
    from rich.console import Group
    from rich.markup import escape

    first = outcomes[0]
    parts: list[RenderableType] = [f"[bold]{escape(head)}[/]", ""]
    timed = [outcome for outcome in outcomes if outcome.timeline]
    if timed:
        parts += [_table(timed, show, width), "", *_footnotes(timed)]
    if first.timeline and first.valid:
        parts += [f"  [bold]{escape(first.name)}[/]", timeline_text(first.timeline, width=width, show=show)]
    refused = reasons(outcomes)
    if refused:
        listed = (
            f"  [dim]{escape(', '.join(names))}[/]  {'each ' * (len(names) > 1)}{escape(why_not)}"
            for why_not, names in refused.items()
        )
        parts += ["", "  not a choice here", *listed]
    return Group(*parts)


def _footnotes(outcomes: Sequence[Outcome]) -> list[str]:
    """Remarks that the table has no column for."""
    lines: list[str] = []
    if any(outcome.copies > 1 for outcome in outcomes):
        lines += [
            "  * two copies of the model: a chunk is twice as large; count its peak double, and, if all were given the same",
            "    time per chunk, its makespan too",
            "",
        ]
    for outcome in outcomes:
        if outcome.peak_chunks_until_w:
            share = f"{outcome.released_by_b:.0%}"
            lines += [
                f"  {outcome.name} counts {share} of an activation as let go at B, as its authors do; held until W, as the others "
                f"count, its peak is {_range(outcome.peak_chunks_until_w)}",
                "",
            ]
    return lines


@dataclass(frozen=True, kw_only=True, slots=True)
class _Column:
    name: str
    write: Callable[[Outcome, Timeline], str]
    rank: int
    """The higher it is, the sooner the column is left out where the terminal is too narrow."""


def _columns(best: float, show: Show) -> list[_Column]:
    def behind(outcome: Outcome, line: Timeline) -> str:
        return signed_percent(outcome.cost / best - 1) if best and outcome.valid else ""

    return [
        _Column(name="makespan", rank=0, write=lambda outcome, line: show(line.makespan)),
        _Column(name="against best", rank=3, write=behind),
        _Column(name="longest span", rank=4, write=lambda outcome, line: show(float(line.span.max()))),
        _Column(name="bubble", rank=2, write=lambda outcome, line: f"{line.bubble_fraction:.1%}"),
        _Column(name="of the span", rank=5, write=lambda outcome, line: f"{line.span_bubble_fraction:.1%}"),
        _Column(name="peak chunks", rank=1, write=lambda outcome, line: _range(outcome.peak_chunks)),
        _Column(name="peak bytes", rank=2, write=lambda outcome, line: _bytes(outcome.peak_bytes)),
        _Column(name="per device", rank=2, write=lambda outcome, line: _bytes([outcome.device_bytes or 0.0])),
    ]


def _table(outcomes: Sequence[Outcome], show: Show, width: int) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    names = [outcome.name + ("*" if outcome.copies > 1 else "") for outcome in outcomes]
    cells = {
        column: [column.write(outcome, outcome.timeline) for outcome in outcomes if outcome.timeline]
        for column in _columns(outcomes[0].cost, show)
    }
    shown = [column for column, written in cells.items() if any(written)]
    widths = {column: max(map(len, [column.name, *cells[column]])) + 2 * MARGIN for column in shown}
    left = width - 2 * MARGIN - max(map(len, ["schedule", *names]))
    while shown and sum(widths[column] for column in shown) > left:
        shown.remove(max(shown, key=lambda column: column.rank))
    table = Table(box=None, padding=(0, MARGIN))
    table.add_column("schedule", no_wrap=True)
    for column in shown:
        table.add_column(column.name, justify="right", no_wrap=True)
    for index, outcome in enumerate(outcomes):
        row: list[Text | str] = [Text(names[index]), *(cells[column][index] for column in shown)]
        table.add_row(*row, style=None if outcome.valid else "dim")
    return table


def _range(peaks: Sequence[int]) -> str:
    low, high = min(peaks), max(peaks)
    return str(low) if low == high else f"{low}–{high}"


def _bytes(peaks: Sequence[float] | None) -> str:
    return size(max(peaks)) if peaks and max(peaks) else ""
