"""A schedule's timeline drawn to a file: the picture that papers on pipelines show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from predict.report.schedules.palette import IDLE, KIND_NAMES, edge, fill, ink, kinds_of, paint, paint_codes
from predict.report.schedules.text import IDLE_CODE, busiest
from predict.report.units import Show, plain
from predict.schedules.engine.order import Floats
from predict.schedules.engine.timeline import Timeline
from predict.schedules.files.order_files import require_suffix
from sampling.files.disk import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch
    from matplotlib.path import Path as MplPath

Integers = NDArray[np.intp]

SUFFIXES = (".svg", ".png")
DOTS_PER_INCH = 150
BOX_INCHES = 0.27
"""Width of a short box (the first quartile of all), where the limits of the picture's width leave room for it."""
LEAST_INCHES, MOST_INCHES = 6.0, 24.0
"""Width of the rows."""
LEAST_ROW, MOST_ROW, ROWS_INCHES = 0.12, 0.36, 24.0
"""Height of a row at least and at most, and of all rows together where that leaves a row its least."""
LEFT, RIGHT, TOP, BOTTOM = 0.8, 0.3, 0.55, 0.95
"""Margins in inches."""
ROW_FILLED = 0.88
DIGIT_WIDTH = 0.64
"""Width of a digit of DejaVu Sans, matplotlib's own font, over the font's size."""
LEAST_POINTS, MOST_POINTS = 4.5, 9.5
OUTLINED_INCHES = 0.05
"""Boxes narrower than this have no outlines, which would hide them."""
MOST_NUMBERS = 5_000
MOST_BOXES = 150_000
"""Beyond this many actions the picture has one box per run of equal pixel columns; in an SVG a box is 100 bytes."""
MOVE, LINE, CLOSE = 1, 2, 79
"""Codes of matplotlib.path.Path."""


def save_plot(timeline: Timeline, path: Path, *, title: str, show: Show = plain) -> None:
    """Draw the timeline to a .svg or .png file; UserError for another suffix.

    One row per rank, rank 0 on top; in an SVG the boxes of a kind and chunk are the group named like "F chunk 0".
    """
    require_suffix(path, SUFFIXES)
    from matplotlib import rc_context

    suffix = path.suffix.lower()

    content = BytesIO()
    with rc_context(
        {"svg.hashsalt": "schedule", "svg.fonttype": "none", "text.parse_math": False, "font.family": ["sans-serif"]}
    ):
        metadata = {"Date": None, "Title": title} if suffix == ".svg" else {"Title": title}
        _figure(timeline, title, show).savefig(content, format=suffix[1:], dpi=DOTS_PER_INCH, metadata=metadata)
    write_atomically(path, content.getvalue())


@dataclass(frozen=True, kw_only=True)
class _Size:
    """Size of the part of the figure that has the rows, in inches."""

    width: float
    row: float
    per_time: float
    """Inches a unit of time."""
    points: float
    """Size of the numbers in the boxes."""


@dataclass(frozen=True, kw_only=True)
class _Boxes:
    """The boxes of a rank: spans of time and the codes of their colours."""

    start: Floats
    end: Floats
    codes: Integers


def _figure(timeline: Timeline, title: str, show: Show) -> Figure:
    from matplotlib.figure import Figure

    ranks = len(timeline.start)
    length = timeline.makespan or 1.0
    size = _size(timeline, length)
    width, height = LEFT + size.width + RIGHT, TOP + ranks * size.row + BOTTOM
    figure = Figure(figsize=(width, height), facecolor="white")
    axes = figure.add_axes((LEFT / width, BOTTOM / height, size.width / width, ranks * size.row / height))
    exact = sum(map(len, timeline.start)) <= MOST_BOXES
    boxes = list(_actions(timeline) if exact else _columns(timeline, length, size))
    _frame(axes, ranks, length, size, show)
    _paint(axes, boxes, len(timeline.order.placement.chains), size)
    if exact:
        _number(axes, timeline, boxes, size)
    _caption(figure, axes, timeline, title, show(timeline.makespan))
    return figure


def _size(timeline: Timeline, makespan: float) -> _Size:
    durations = np.concatenate([end - start for start, end in zip(timeline.start, timeline.end, strict=True)])
    short = float(np.quantile(durations, 0.25)) or makespan
    width = float(np.clip(makespan / short * BOX_INCHES, LEAST_INCHES, MOST_INCHES))
    row = float(np.clip(ROWS_INCHES / len(timeline.start), LEAST_ROW, MOST_ROW))
    digits = len(str(timeline.order.microbatches - 1))
    fitting = 72 * min(row * 0.6, short * width / makespan / (digits + 0.5) / DIGIT_WIDTH)
    points = float(np.clip(fitting, LEAST_POINTS, MOST_POINTS))
    return _Size(width=width, row=row, per_time=width / makespan, points=points)


def _actions(timeline: Timeline) -> Iterator[_Boxes]:
    """A box for each action."""
    for rank, (start, end) in enumerate(zip(timeline.start, timeline.end, strict=True)):
        yield _Boxes(start=start, end=end, codes=paint_codes(timeline.order, rank))


def _columns(timeline: Timeline, makespan: float, size: _Size) -> Iterator[_Boxes]:
    """A box for each run of columns of dots that show the same."""
    edges = np.linspace(0.0, makespan, round(size.width * DOTS_PER_INCH) + 1)
    chunks = len(timeline.order.placement.chains)
    for boxes in _actions(timeline):
        shown = busiest(boxes.start, boxes.end, boxes.codes, edges, chunks=chunks)
        first = np.flatnonzero(np.diff(shown, prepend=IDLE_CODE - 1))
        last = np.append(first[1:], len(shown))
        busy = shown[first] != IDLE_CODE
        yield _Boxes(start=edges[first[busy]], end=edges[last[busy]], codes=shown[first[busy]])


def _frame(axes: Axes, ranks: int, makespan: float, size: _Size, show: Show) -> None:
    """Rows of idle time, the axes, and a line at the makespan."""
    axes.set_xlim(0, makespan)
    axes.set_ylim(ranks - 0.5, -0.5)
    every = max(1, round(0.16 / size.row))
    axes.set_yticks(range(0, ranks, every), [f"rank {rank}" for rank in range(0, ranks, every)], fontsize=9)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=8.5, color="#888888")
    axes.xaxis.set_major_formatter(lambda time, _: show(time))
    axes.set_xlabel("time", fontsize=9.5)
    for side in ("top", "left", "right"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color("#888888")
    idle = axes.barh(range(ranks), makespan, height=ROW_FILLED, color=IDLE, zorder=0)
    for rank, bar in enumerate(idle):
        bar.set_gid(f"rank {rank}")
    line = axes.axvline(makespan, color="#444444", linewidth=1.0, linestyle=(0, (4, 2)), clip_on=False, zorder=3)
    line.set_gid("makespan")


def _paint(axes: Axes, boxes: list[_Boxes], chunks: int, size: _Size) -> None:
    """A collection for each colour, in it a path for each rank: one a box makes an SVG slow to write, and twice as large."""
    from matplotlib.collections import PathCollection

    for code in np.unique(np.concatenate([row.codes for row in boxes])).tolist():
        kind, chunk = paint(code, chunks)
        chosen = [(rank, row.start[row.codes == code], row.end[row.codes == code]) for rank, row in enumerate(boxes)]
        widths = np.concatenate([end - start for _, start, end in chosen]) * size.per_time
        colour = fill(kind, chunk, chunks)
        painted = PathCollection(
            [_path(rank, start, end) for rank, start, end in chosen if len(start)],
            facecolors=colour,
            edgecolors=edge(colour),
            linewidths=0.6 if np.median(widths) >= OUTLINED_INCHES else 0.0,
            zorder=2,
        )
        painted.set_gid(f"{kind} chunk {chunk}")
        axes.add_collection(painted, autolim=False)


def _path(rank: int, start: Floats, end: Floats) -> MplPath:
    """The boxes of a row, each with its five points."""
    from matplotlib.path import Path as MplPath

    low, high = np.full(len(start), rank - ROW_FILLED / 2), np.full(len(start), rank + ROW_FILLED / 2)
    across = np.stack([start, end, end, start, start], axis=1)
    down = np.stack([low, low, high, high, low], axis=1)
    codes = np.tile(np.array([MOVE, LINE, LINE, LINE, CLOSE], np.uint8), len(start))
    return MplPath(np.stack([across.ravel(), down.ravel()], axis=1), codes)


def _number(axes: Axes, timeline: Timeline, boxes: list[_Boxes], size: _Size) -> None:
    """The microbatch in each box where it fits."""
    chunks = len(timeline.order.placement.chains)
    if sum(len(row.codes) for row in boxes) > MOST_NUMBERS or size.row * 72 < size.points:
        return
    for rank, row in enumerate(boxes):
        inks = {code: ink(fill(*paint(code, chunks), chunks)) for code in np.unique(row.codes).tolist()}
        middles, widths = (row.start + row.end) / 2, (row.end - row.start) * size.per_time
        codes = row.codes.tolist()
        for index, action in enumerate(timeline.order.actions[rank]):
            number = str(action.microbatch)
            if (len(number) + 0.2) * DIGIT_WIDTH * size.points / 72 > widths[index]:
                continue
            axes.text(
                middles[index],
                rank,
                number,
                color=inks[codes[index]],
                size=size.points,
                ha="center",
                va="center_baseline",
            )


def _caption(figure: Figure, axes: Axes, timeline: Timeline, title: str, makespan: str) -> None:
    """Title and makespan above the rows, the legend below."""
    from matplotlib.legend_handler import HandlerTuple
    from matplotlib.patches import Patch

    height = figure.get_figheight()
    width = figure.get_figwidth()
    above = 1 - (TOP - 0.12) / height
    figure.text(LEFT / width, above, title, size=11.5, weight="bold", va="bottom")
    figure.text(1 - RIGHT / width, above, f"makespan {makespan}", size=9.5, ha="right", va="bottom")
    chunks = len(timeline.order.placement.chains)
    kinds = kinds_of(timeline.order)
    swatches = [tuple(_swatch(fill(kind, chunk, chunks)) for chunk in range(chunks)) for kind in kinds]
    labels = [f"{kind}  {KIND_NAMES[kind]}" for kind in kinds]
    entries: list[Any] = [*swatches, (Patch(facecolor=IDLE, edgecolor="#bbbbbb", linewidth=0.6),)]
    labels.append("idle")
    if chunks > 1:
        entries.append((Patch(facecolor="none", edgecolor="none"),))
        labels.append(f"dark to light: chunk 0 to {chunks - 1}")
    figure.legend(
        entries,
        labels,
        handler_map={tuple: HandlerTuple(ndivide=None, pad=0.0)},
        loc="lower left",
        bbox_to_anchor=(LEFT / width, 0.08 / height),
        borderaxespad=0.0,
        ncols=len(labels),
        frameon=False,
        fontsize=9,
        handlelength=1.4 * min(chunks, 4),
    )


def _swatch(colour: str) -> Patch:
    from matplotlib.patches import Patch

    return Patch(facecolor=colour, edgecolor=edge(colour), linewidth=0.6)
