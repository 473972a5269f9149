"""Schedules in a terminal: a timeline as one row per rank, and schedules compared with each other, also as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import floor, log10
from typing import TYPE_CHECKING, Any

import numpy as np

from predict.reports.palette import KIND_NAMES, edge, fill, ink, kinds_of, paint, paint_codes
from predict.reports.printed import Renderable
from predict.reports.text import escape, stacked
from predict.schedules.compare import ScheduleOutcome, reasons
from predict.schedules.engine.order import KINDS, MICROBATCH, ActionKind
from predict.schedules.engine.timing import Timeline
from predict.serialise import picked, versioned
from regressors.features.arrays import Floats, Indices
from sampling.number_text import Show, percent, plain, signed_percent, size, whole_percent

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.text import Text


Piece = tuple[str, str]
"""Characters and their style."""

IDLE_CODE = -1
IDLE_MARK = "·"
EDGE = "▏"
COLUMNS_A_TICK = 14
SWATCHES = 8


def timeline_text(timeline: Timeline, *, width: int, show: Show = plain) -> Renderable:
    """The picture of the timeline in `width` columns; a column shows what it is busy with for longest.

    Blocks of two columns and more have an edge, and their microbatch's number where it fits. Without colour the edge
    is the letter of the kind, in lower case for the odd chunks. `show` writes the times of the axis.
    """
    return _Picture(timeline=timeline, width=width, show=show)


def busiest(start: Floats, end: Floats, codes: Indices, edges: Floats, *, chunks: int) -> Indices:
    """The code that each column, from one of the `edges` to the next, shows: of `paint_codes`, or IDLE_CODE.

    A column that is busy for half its time or more shows the kind it spends most of it on, and of that kind the
    busiest chunk. The actions follow each other.
    """
    present = np.unique(codes)
    busy = np.stack([_busy(start[codes == code], end[codes == code], edges) for code in present])
    kind_of = present // chunks
    by_kind = np.stack([busy[kind_of == kind].sum(axis=0) for kind in kind_of])
    busy[by_kind < by_kind.max(axis=0)] = -1.0
    shown: Indices = present[busy.argmax(axis=0)]
    shown[busy.clip(0).max(axis=0) <= 0] = IDLE_CODE
    shown[_busy(start, end, edges) < np.diff(edges) * (0.5 - 1e-9)] = IDLE_CODE
    return shown


def _busy(start: Floats, end: Floats, edges: Floats) -> Floats:
    """Time of each column spent in these actions: the time spent so far grows in them and stands still between."""
    spent = np.cumsum(end - start)
    times = np.stack([start, end], axis=1).ravel()
    so_far = np.stack([spent - (end - start), spent], axis=1).ravel()
    return np.diff(np.interp(edges, times, so_far))


@dataclass(frozen=True, kw_only=True)
class _Picture:
    """Draws itself once the console is known, since without colour other characters distinguish the kinds."""

    timeline: Timeline
    width: int
    show: Show

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        from rich.text import Text

        pencils = _pencils(self.timeline, plain=console.no_color or console.color_system is None)
        for line in _lines(self.timeline, self.width, pencils, self.show):
            text = Text.assemble(*line, no_wrap=True)
            text.truncate(self.width, overflow="crop")
            yield text


@dataclass(frozen=True, kw_only=True)
class _Pencil:
    """Style of the blocks of one kind and chunk."""

    edge: Piece
    narrow: str
    rest: str
    style: str


IDLE = _Pencil(edge=(IDLE_MARK, "dim"), narrow=IDLE_MARK, rest=IDLE_MARK, style="dim")


def _marks(kinds: Sequence[ActionKind]) -> dict[ActionKind, str]:
    """A character for each kind; a whole backward is a B unless there are gradients of the input alone too."""
    return {"F": "F", "B": "B", "W": "W", "BW": "X" if "B" in kinds else "B"}


def _pencils(timeline: Timeline, *, plain: bool) -> dict[int, _Pencil]:
    """Pencils by code of `paint_codes`: one per kind and chunk of the timeline, and IDLE_CODE for idle time."""
    kinds, chunks = kinds_of(timeline.order), len(timeline.order.placement.chains)
    marks = _marks(kinds)
    pencils = {IDLE_CODE: IDLE}
    for code in range(len(KINDS) * chunks):
        kind, chunk = paint(code, chunks)
        if kind not in kinds:
            continue
        if plain:
            mark = marks[kind].lower() if chunk % 2 else marks[kind]
            pencils[code] = _Pencil(edge=(mark, ""), narrow=mark, rest="─", style="")
        else:
            colour = fill(kind, chunk, chunks)
            outline = f"{edge(colour)} on {colour}"
            pencils[code] = _Pencil(edge=(EDGE, outline), narrow=" ", rest=" ", style=f"{ink(colour)} on {colour}")
    return pencils


def _lines(timeline: Timeline, width: int, pencils: dict[int, _Pencil], show: Show) -> Iterator[list[Piece]]:
    names = [f"rank {rank}" for rank in range(len(timeline.start))]
    margin = max(map(len, names)) + 1
    columns = max(2, width - margin)
    makespan = timeline.makespan
    edges = np.linspace(0.0, makespan or 1.0, columns + 1)
    for rank, name in enumerate(names):
        yield [(f"{name:<{margin}}", "bold"), *_row(timeline, rank, edges, pencils)]
    for line in _axis(makespan, columns, show):
        yield [(" " * margin + line, "")]
    yield []
    yield from _legend(timeline, width, pencils)


def _row(timeline: Timeline, rank: int, edges: Floats, pencils: dict[int, _Pencil]) -> list[Piece]:
    start, end = timeline.start[rank], timeline.end[rank]
    chunks = len(timeline.order.placement.chains)
    codes = paint_codes(timeline.order, rank)
    shown = busiest(start, end, codes, edges, chunks=chunks)
    cells = [(pencils[code].narrow, pencils[code].style) for code in shown.tolist()]
    first, last = (np.rint(times / edges[1]).astype(np.intp) for times in (start, end))
    if len(first) <= len(cells):
        _give_each_a_cell(first, last, len(cells))
        for index in np.flatnonzero(last - first == 1).tolist():
            pencil = pencils[int(codes[index])]
            cells[int(first[index])] = (pencil.narrow, pencil.style)
    for index in np.flatnonzero(last - first >= 2).tolist():
        pencil = pencils[int(codes[index])]
        left, size = int(first[index]), int(last[index] - first[index])
        number = str(timeline.order.rows[rank][index, MICROBATCH])
        inside = (number if len(number) < size else "").ljust(size - 1, pencil.rest)
        cells[left : left + size] = [pencil.edge, *((character, pencil.style) for character in inside)]
    return _joined(cells)


def _give_each_a_cell(first: Indices, last: Indices, columns: int) -> None:
    """Moves the bounds of passes that rounding leaves without a cell to one where there is room: an idle one beside them, or one of a
    neighbour that has two and more."""
    for index in np.flatnonzero(first == last).tolist():
        before = int(last[index - 1]) if index else 0
        after = int(first[index + 1]) if index + 1 < len(first) else columns
        if before < after:
            cell = min(max(int(first[index]), before), after - 1)
        elif index + 1 < len(first) and last[index + 1] - after >= 2:
            cell = after
            first[index + 1] += 1
        elif index and before - first[index - 1] >= 2:
            cell = before - 1
            last[index - 1] -= 1
        else:
            continue
        first[index], last[index] = cell, cell + 1


def _joined(cells: Sequence[Piece]) -> list[Piece]:
    """Neighbours of one style as one piece."""
    pieces: list[Piece] = []
    for characters, style in cells:
        if pieces and pieces[-1][1] == style:
            pieces[-1] = (pieces[-1][0] + characters, style)
        else:
            pieces.append((characters, style))
    return pieces


def _axis(makespan: float, columns: int, show: Show) -> tuple[str, str]:
    """A ruled line, and below it times at round numbers, the makespan at the end."""
    line, below = ["─"] * columns, [" "] * columns
    last = next(text for text in (f"makespan {show(makespan)}", show(makespan), "") if len(text) <= columns)
    below[columns - len(last) :] = last
    step = round_step(makespan * COLUMNS_A_TICK / columns) if makespan else 1.0
    for tick in range(floor(makespan / step) + 1):
        column = round(tick * step / (makespan or 1.0) * columns)
        text = show(tick * step)
        if column + len(text) < columns - len(last):
            line[column] = "┬"
            below[column : column + len(text)] = text
    line[0], line[-1] = "├", "┤"
    return "".join(line), "".join(below)


def round_step(least: float) -> float:
    """The next larger of 1, 2 and 5 times a power of ten."""
    power = 10.0 ** floor(log10(least))
    return next((factor * power for factor in (1, 2, 5) if factor * power >= least), 10 * power)


def _legend(timeline: Timeline, width: int, pencils: dict[int, _Pencil]) -> Iterator[list[Piece]]:
    """The legend's items, as many a line as fit."""
    line: list[Piece] = []
    for item in _legend_items(timeline, pencils):
        gap = [("   ", "")] if line else []
        if line and sum(len(text) for text, _ in [*line, *gap, *item]) > width:
            yield line
            line, gap = [], []
        line = [*line, *gap, *item]
    yield line


def _legend_items(timeline: Timeline, pencils: dict[int, _Pencil]) -> Iterator[list[Piece]]:
    chunks = len(timeline.order.placement.chains)
    coloured = pencils[max(pencils)].style != ""
    for kind in kinds_of(timeline.order):
        found = [pencil for code, pencil in pencils.items() if code >= 0 and paint(code, chunks)[0] == kind]
        if coloured:
            swatches = [(f" {kind} " if chunk == 0 else "  ", pencil.style) for chunk, pencil in enumerate(found)]
        else:
            swatches = [("/".join(dict.fromkeys(pencil.narrow for pencil in found)), "")]
        yield [*swatches[:SWATCHES], (f" {KIND_NAMES[kind]}", "")]
    yield [(IDLE_MARK, "dim"), (" idle", "")]
    if chunks > 1:
        yield [(f"dark to light: chunk 0 to {chunks - 1}" if coloured else "lower case: odd chunks", "")]


MARGIN = 2
"""Blanks on either side of a column."""


def comparison_json(outcomes: Sequence[ScheduleOutcome]) -> dict[str, Any]:
    """Stable and versioned; times in the unit of the stage times, null where a schedule cannot run the counts.

    `peak_chunks` are chunk activations in the schedule's own account, released at W (BW where the backward is whole)
    but for zb-auto, `peak_chunks_until_w` those all held until W, null where that is the same. `copies` is how many
    copies of the model it runs; a chunk of it, and of its peak, is as many times as large. `cost` is the time it is
    ranked by: makespan × copies, or with a config the whole step. `peak_bytes` is null where the bytes of a chunk's
    activations are not known; `device_bytes`, the expected peak of the fullest device, without a config.
    """
    return versioned("schedule", {"schedules": [_outcome_json(outcome) for outcome in outcomes]})


def _outcome_json(outcome: ScheduleOutcome) -> dict[str, Any]:
    line = outcome.timeline
    return (
        picked(outcome, "name")
        | picked(line, "makespan")
        | {"span": line and float(line.span.max())}
        | picked(line, "bubble_fraction span_bubble_fraction")
        | picked(outcome, "peak_chunks peak_chunks_until_w peak_bytes device_bytes copies")
        | {"cost": outcome.cost if line else None}
        | picked(outcome, "valid why_not")
    )


def comparison_text(outcomes: Sequence[ScheduleOutcome], *, head: str, show: Show, width: int) -> Renderable:
    """The table, the picture of the best schedule, and why others are not a choice. `show` writes a time."""
    first = outcomes[0]
    parts: list[Renderable] = [f"[bold]{escape(head)}[/]", ""]
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
    return stacked(*parts)


def _footnotes(outcomes: Sequence[ScheduleOutcome]) -> list[str]:
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
            share = whole_percent(outcome.released_by_b)
            lines += [
                f"  {outcome.name} counts {share} of an activation as let go at B, as its authors do; held until W, as the others "
                f"count, its peak is {_range(outcome.peak_chunks_until_w)}",
                "",
            ]
    return lines


@dataclass(frozen=True, kw_only=True, slots=True)
class _Column:
    name: str
    write: Callable[[ScheduleOutcome, Timeline], str]
    rank: int
    """The higher it is, the sooner the column is left out where the terminal is too narrow."""


def _columns(best: float, show: Show) -> list[_Column]:
    def behind(outcome: ScheduleOutcome, line: Timeline) -> str:
        return signed_percent(outcome.cost / best - 1) if best and outcome.valid else ""

    return [
        _Column(name="makespan", rank=0, write=lambda outcome, line: show(line.makespan)),
        _Column(name="against best", rank=3, write=behind),
        _Column(name="longest span", rank=4, write=lambda outcome, line: show(float(line.span.max()))),
        _Column(name="bubble", rank=2, write=lambda outcome, line: percent(line.bubble_fraction)),
        _Column(name="of the span", rank=5, write=lambda outcome, line: percent(line.span_bubble_fraction)),
        _Column(name="peak chunks", rank=1, write=lambda outcome, line: _range(outcome.peak_chunks)),
        _Column(name="peak bytes", rank=2, write=lambda outcome, line: _bytes(outcome.peak_bytes)),
        _Column(name="per device", rank=2, write=lambda outcome, line: _bytes([outcome.device_bytes or 0.0])),
    ]


def _table(outcomes: Sequence[ScheduleOutcome], show: Show, width: int) -> Renderable:
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
