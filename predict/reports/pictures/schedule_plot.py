"""A schedule's timeline drawn to a file: the picture that papers on pipelines show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from predict.reports.palette import IDLE, KIND_NAMES, edge, fill, ink, kinds_of, paint
from predict.reports.pictures.figure_file import BOLD_WIDTH, lines_within, save_figure
from predict.reports.pictures.timeline import Boxes, SteadyState, TimeAxis, box_per_action, merged, steady_state
from predict.schedules.engine.order import ActionKind
from predict.schedules.engine.timing import Timeline
from regressors.features.arrays import Floats
from sampling.files.faults import counted
from sampling.number_text import Show, percent, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch
    from matplotlib.path import Path as MplPath

BOX_INCHES = 0.27
"""Width of a short box (the first quartile of all), where the limits of the picture's width leave room for it."""
LEAST_INCHES, MOST_INCHES = 6.0, 18.0
"""Width of the rows."""
LEAST_ROW, MOST_ROW, ROWS_INCHES = 0.2, 0.36, 16.0
"""Height of a row at least and at most, and of all rows together where that leaves a row its least."""
MOST_ROWS = 64
"""Ranks that have a row; of more, so many evenly spread ones."""
LEFT, RIGHT, ABOVE, BOTTOM = 0.8, 0.3, 0.14, 0.95
"""Margins in inches, above the rows apart from the lines that stand there."""
TITLE_POINTS, LINE_POINTS, LEADING = 11.5, 9.0, 1.45
GAP_INCHES = 0.45
"""Width of the gap in place of the repeats of a steady state."""
ROW_FILLED = 0.88
DIGIT_WIDTH = 0.64
"""Width of a digit of DejaVu Sans, matplotlib's own font, over the font's size."""
LEAST_POINTS, MOST_POINTS = 4.5, 9.5
LEAST_BOX_INCHES = 0.05
"""Boxes narrower than this are merged, each kind in a lane of its own: forwards and backwards in turn would be a barcode."""
MERGED_INCHES = 0.12
"""Boxes of one colour that are less than this apart are merged."""
TICK_INCHES = 1.2
MOST_NUMBERS = 5_000
MOST_BOXES = 150_000
"""Beyond this many actions boxes are merged; in an SVG a box is 100 bytes."""
MOVE, LINE, CLOSE = 1, 2, 79
"""Codes of matplotlib.path.Path."""


def save_plot(timeline: Timeline, path: Path, *, title: str, about: str = "", show: Show = plain) -> None:
    """Draw the timeline to a .svg or .png file; UserError for another suffix.

    One row per rank, rank 0 on top; in an SVG the boxes of a kind and chunk are the group named like "F chunk 0". Above the
    rows stand the title, `about` (what is scheduled), makespan and bubble. A step that is too long for a box per action shows
    one period of its steady state, and how many more like it there are.
    """
    save_figure(lambda: timeline_figure(timeline, title, about, show), path, title=title)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Picture:
    """The timeline as it is drawn, and the sizes of the part of the figure that has the rows, in inches."""

    timeline: Timeline
    ranks: Sequence[int]
    axis: TimeAxis
    steady: SteadyState | None
    """The steady state, one period of which is drawn."""
    in_lanes: bool
    width: float
    row: float
    per_time: float
    """Inches a unit of time."""
    points: float
    """Size of the numbers in the boxes."""
    show: Show

    @property
    def chunks(self) -> int:
        return len(self.timeline.order.placement.chains)

    @property
    def kinds(self) -> list[ActionKind]:
        return kinds_of(self.timeline.order)

    @property
    def height(self) -> float:
        return len(self.ranks) * self.row


def _picture(timeline: Timeline, show: Show) -> _Picture:
    durations = np.concatenate([end - start for start, end in zip(timeline.start, timeline.end, strict=True)])
    length = timeline.makespan or 1.0
    short = float(np.quantile(durations, 0.25)) or length
    axis, steady = TimeAxis.whole(length), None
    if length / short * BOX_INCHES > MOST_INCHES and (steady := steady_state(timeline)):
        axis = TimeAxis.without_repeats(length, steady, gap_share=GAP_INCHES / MOST_INCHES)
    width = float(np.clip(axis.length / short * BOX_INCHES, LEAST_INCHES, MOST_INCHES))
    ranks = np.unique(np.linspace(0, timeline.order.ranks - 1, MOST_ROWS).round().astype(int)).tolist()
    row = float(np.clip(ROWS_INCHES / len(ranks), LEAST_ROW, MOST_ROW))
    digits = len(str(timeline.order.microbatches - 1))
    fitting = 72 * min(row * 0.6, short * width / axis.length / (digits + 0.5) / DIGIT_WIDTH)
    return _Picture(
        timeline=timeline,
        ranks=ranks,
        axis=axis,
        steady=steady,
        in_lanes=short * width / axis.length < LEAST_BOX_INCHES or len(durations) > MOST_BOXES,
        width=width,
        row=row,
        per_time=width / axis.length,
        points=float(np.clip(fitting, LEAST_POINTS, MOST_POINTS)),
        show=show,
    )


def timeline_figure(timeline: Timeline, title: str, about: str, show: Show) -> Figure:
    """The figure that `save_plot` writes."""
    from matplotlib.figure import Figure

    picture = _picture(timeline, show)
    heads = lines_within(title, inches=picture.width, points=TITLE_POINTS, character_width=BOLD_WIDTH)
    facts = f"makespan {show(timeline.makespan)}, bubble {percent(timeline.bubble_fraction)}"
    lines = [line for text in (about, facts) for line in lines_within(text, inches=picture.width, points=LINE_POINTS)]
    marked = 1.6 * LINE_POINTS * LEADING / 72 if picture.steady else 0.0
    top = ABOVE + (len(heads) * TITLE_POINTS + len(lines) * LINE_POINTS) * LEADING / 72 + ABOVE + marked
    width, height = LEFT + picture.width + RIGHT, top + picture.height + BOTTOM
    figure = Figure(figsize=(width, height), facecolor="white")
    axes = figure.add_axes((LEFT / width, BOTTOM / height, picture.width / width, picture.height / height))
    boxes = [box_per_action(timeline, rank, picture.axis) for rank in picture.ranks]
    if picture.in_lanes:
        boxes = [merged(row, MERGED_INCHES / picture.per_time) for row in boxes]
    _frame(axes, picture)
    _paint(axes, boxes, picture)
    if picture.steady:
        _mark_period(axes, picture, picture.steady)
    if not picture.in_lanes:
        _number(axes, boxes, picture)
    _write_above(figure, heads, lines)
    _legend(figure, picture)
    return figure


def _frame(axes: Axes, picture: _Picture) -> None:
    """Rows of idle time, the axes, and a line at the makespan."""
    axis, rows = picture.axis, len(picture.ranks)
    axes.set_xlim(0, axis.length)
    axes.set_ylim(rows - 0.5, -0.5)
    axes.set_yticks(range(rows), [f"rank {rank}" for rank in picture.ranks], fontsize=9)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=8.5, color="#888888")
    ticks = np.array(list(axis.ticks(max(2, round(picture.width / TICK_INCHES)))))
    axes.set_xticks(axis.place(ticks), [picture.show(tick) for tick in ticks.tolist()])
    axes.set_xlabel("time", fontsize=9.5)
    for side in ("top", "left", "right"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color("#888888")
    idle = axes.barh(range(rows), axis.length, height=ROW_FILLED, color=IDLE, zorder=0)
    for rank, bar in zip(picture.ranks, idle, strict=True):
        bar.set_gid(f"rank {rank}")
    line = axes.axvline(axis.length, color="#444444", linewidth=1.0, linestyle=(0, (4, 2)), clip_on=False, zorder=3)
    line.set_gid("makespan")


def _paint(axes: Axes, boxes: Sequence[Boxes], picture: _Picture) -> None:
    """A collection for each colour, in it a path for each rank: one a box makes an SVG slow to write, and twice as large."""
    from matplotlib.collections import PathCollection

    for code in np.unique(np.concatenate([row.codes for row in boxes])).tolist():
        kind, chunk = paint(code, picture.chunks)
        chosen = [(place, row.start[row.codes == code], row.end[row.codes == code]) for place, row in enumerate(boxes)]
        colour = fill(kind, chunk, picture.chunks)
        top, bottom = _lane(kind, picture)
        painted = PathCollection(
            [_path(start, end, place + top, place + bottom) for place, start, end in chosen if len(start)],
            facecolors=colour,
            edgecolors=edge(colour),
            linewidths=0.0 if picture.in_lanes else 0.6,
            zorder=2,
        )
        painted.set_gid(f"{kind} chunk {chunk}")
        axes.add_collection(painted, autolim=False)


def _lane(kind: ActionKind, picture: _Picture) -> tuple[float, float]:
    """Top and bottom of the kind's boxes, from the middle of the row."""
    if not picture.in_lanes:
        return -ROW_FILLED / 2, ROW_FILLED / 2
    share = ROW_FILLED / len(picture.kinds)
    top = picture.kinds.index(kind) * share - ROW_FILLED / 2
    return top, top + share


def _path(start: Floats, end: Floats, top: float, bottom: float) -> MplPath:
    """The boxes of a row, each with its five points."""
    from matplotlib.path import Path as MplPath

    low, high = np.full(len(start), top), np.full(len(start), bottom)
    across = np.stack([start, end, end, start, start], axis=1)
    down = np.stack([low, low, high, high, low], axis=1)
    codes = np.tile(np.array([MOVE, LINE, LINE, LINE, CLOSE], np.uint8), len(start))
    return MplPath(np.stack([across.ravel(), down.ravel()], axis=1), codes)


def _number(axes: Axes, boxes: Sequence[Boxes], picture: _Picture) -> None:
    """The microbatch in each box where it fits."""
    if sum(len(row.codes) for row in boxes) > MOST_NUMBERS or picture.row * 72 < picture.points:
        return
    inks = {
        code: ink(fill(*paint(code, picture.chunks), picture.chunks))
        for code in np.unique(np.concatenate([row.codes for row in boxes])).tolist()
    }
    for place, row in enumerate(boxes):
        assert row.microbatches is not None
        middles, widths = (row.start + row.end) / 2, (row.end - row.start) * picture.per_time
        for middle, width, code, microbatch in zip(middles, widths, row.codes.tolist(), row.microbatches, strict=True):
            number = str(microbatch)
            if (len(number) + 0.2) * DIGIT_WIDTH * picture.points / 72 > width:
                continue
            axes.text(middle, place, number, color=inks[code], size=picture.points, ha="center", va="center_baseline")


def _mark_period(axes: Axes, picture: _Picture, steady: SteadyState) -> None:
    """The gap, a bracket over the period that is drawn, and how many more like it there are."""
    axis = picture.axis
    axes.axvspan(axis.leaves, axis.leaves + axis.gap, color="white", zorder=4, linewidth=0)
    for edge_of_gap in (axis.leaves, axis.leaves + axis.gap):
        axes.axvline(edge_of_gap, color="#888888", linewidth=0.8, linestyle=(0, (2, 2)), zorder=5)
    across = axes.get_xaxis_transform()
    low, high = (1 + inches / picture.height for inches in (0.05, 0.11))
    corners = [steady.start, steady.start, axis.leaves, axis.leaves]
    axes.plot(corners, [low, high, high, low], color="#444444", linewidth=1.0, transform=across, clip_on=False)
    said = f"one period of {picture.show(steady.period)}, then {steady.count - 1:,} more like it"
    half = len(said) * 0.3 * LINE_POINTS / 72 / picture.per_time
    middle = float(np.clip((steady.start + axis.leaves) / 2, half, axis.length - half))
    mark = axes.text(middle, high + 0.05 / picture.height, said, size=LINE_POINTS, ha="center", transform=across)
    mark.set_gid("steady state")


def _write_above(figure: Figure, heads: Sequence[str], lines: Sequence[str]) -> None:
    """The title and the lines below it, from the top of the figure down."""
    width, height = figure.get_size_inches()
    down = ABOVE
    written = [(text, TITLE_POINTS, "bold") for text in heads] + [(text, LINE_POINTS, "normal") for text in lines]
    for text, points, weight in written:
        down += points * LEADING / 72
        figure.text(LEFT / width, 1 - down / height, text, size=points, weight=weight, va="baseline")


def _legend(figure: Figure, picture: _Picture) -> None:
    from matplotlib.legend_handler import HandlerTuple
    from matplotlib.patches import Patch

    chunks = picture.chunks
    entries: list[Any] = [
        tuple(_swatch(fill(kind, chunk, chunks)) for chunk in range(chunks)) for kind in picture.kinds
    ]
    entries.append((Patch(facecolor=IDLE, edgecolor="#bbbbbb", linewidth=0.6),))
    labels = [*(f"{kind}  {KIND_NAMES[kind]}" for kind in picture.kinds), "idle"]
    notes = [f"dark to light: chunk 0 to {chunks - 1}"] if chunks > 1 else []
    notes += ["a lane per kind, short gaps closed"] if picture.in_lanes else []
    if len(picture.ranks) < picture.timeline.order.ranks:
        notes.append(f"{len(picture.ranks)} of {counted(picture.timeline.order.ranks, 'rank')}")
    width, height = figure.get_size_inches()
    figure.legend(
        entries,
        labels,
        handler_map={tuple: HandlerTuple(ndivide=None, pad=0.0)},
        loc="lower left",
        bbox_to_anchor=(LEFT / width, 0.22 / height if notes else 0.08 / height),
        borderaxespad=0.0,
        ncols=len(labels),
        frameon=False,
        fontsize=9,
        handlelength=1.4 * min(chunks, 4),
    )
    figure.text(LEFT / width, 0.1 / height, "; ".join(notes), size=8.5, color="#444444", va="bottom")


def _swatch(colour: str) -> Patch:
    from matplotlib.patches import Patch

    return Patch(facecolor=colour, edgecolor=edge(colour), linewidth=0.6)
