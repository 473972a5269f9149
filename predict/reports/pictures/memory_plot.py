"""A plot of memory over a step: one panel per pipeline rank, its terms stacked, and the device's capacity as a line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from predict.memory.estimate import STACKED_TERMS, MemoryEstimate, RankTimeline
from predict.reports.pictures.figure_file import lines_within, save_figure
from predict.reports.text import run_text
from regressors.features.arrays import Floats
from sampling.number_text import duration, gib, percent, significant, size
from sampling.units import GIB

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {
    "device": "#6f7683",
    "slack": "#dcdee3",
    "buffers": "#a9afba",
    "parameters": "#27406e",
    "optimizer": "#3f73d0",
    "gradients": "#22b3c4",
    "activations": "#43a053",
    "working": "#efa92f",
    "other_models": "#8f6fc2",
    "engine_weights": "#b5651d",
    "kv_cache": "#e08aa8",
    "engine_reserved": "#c9b79c",
}
"""Term → its colour; the last four are of RL steps."""
WIDTH, PANEL, ABOVE, BOTTOM, LEFT, RIGHT = 11.0, 1.55, 0.2, 0.8, 0.95, 0.3
"""Inches; ABOVE is apart from the lines of the title."""
TITLE_POINTS, LINE_POINTS, LEADING = 11.5, 9.0, 1.45
MOST_PANELS = 16
LEAST_FILLED = 0.3
"""Share of the capacity that the highest peak takes at least where the panels reach up to the capacity."""
MOST_SPANS, COLUMNS, DIP = 300, 1000, 13
"""Spans of a rank that are drawn as they are; of more, columns of 0.01 inch, and the width of dips that are filled."""
LEAST_STEP = 1 / 300
"""Share of a panel's height below which a step of a curve is not seen: half a dot."""


def save_memory_plot(
    courses: Sequence[RankTimeline], memory: MemoryEstimate, path: Path, *, bubble_fraction: float
) -> None:
    """Draw to a .svg or .png file; UserError for another suffix. `bubble_fraction` is the schedule's."""
    title = f"memory of {memory.run.name} over a step"
    save_figure(lambda: memory_figure(courses, memory, title=title, bubble_fraction=bubble_fraction), path, title=title)


def shown_ranks(courses: Sequence[RankTimeline], worst: int) -> list[RankTimeline]:
    """All ranks, or up to MOST_PANELS of them, evenly spread, with the first, the last and the worst."""
    if len(courses) <= MOST_PANELS:
        return list(courses)
    chosen = {round(place) for place in np.linspace(0, len(courses) - 1, MOST_PANELS - 1)} | {worst}
    return [courses[rank] for rank in sorted(chosen)]


def memory_figure(
    courses: Sequence[RankTimeline], memory: MemoryEstimate, *, title: str, bubble_fraction: float
) -> Figure:
    """A panel for each rank; `bubble_fraction` is the schedule's."""
    from matplotlib.figure import Figure

    shown = shown_ranks(courses, memory.worst.rank)
    verdict = f"{memory.verdict}: {gib(memory.point_bytes)} of {size(memory.capacity_bytes)}"
    of_run = f"{run_text(memory.run)}; bubble {percent(bubble_fraction)}"
    inches = WIDTH - LEFT - RIGHT
    lines = [line for text in (of_run, verdict) for line in lines_within(text, inches=inches, points=LINE_POINTS)]
    top = ABOVE + (TITLE_POINTS + len(lines) * LINE_POINTS) * LEADING / 72
    height = top + PANEL * len(shown) + BOTTOM
    figure = Figure(figsize=(WIDTH, height), facecolor="white")
    highest = _highest_gib(courses, memory)
    length = max(float(each.end_us[-1]) for each in courses)
    for place, each in enumerate(shown):
        bottom = height - top - PANEL * (place + 1) + 0.16
        axes = figure.add_axes((LEFT / WIDTH, bottom / height, inches / WIDTH, (PANEL - 0.22) / height))
        _panel(axes, each, memory, highest, length)
        is_last = place == len(shown) - 1
        axes.tick_params(axis="x", labelbottom=is_last)
        if is_last:
            axes.set_xlabel("time", fontsize=9)
    down = ABOVE
    for number, text in enumerate([title, *lines]):
        points = LINE_POINTS if number else TITLE_POINTS
        figure.text(
            LEFT / WIDTH, 1 - down / height, text, size=points, weight="normal" if number else "bold", va="center"
        )
        down += points * LEADING / 72
    _legend(figure, height, memory.capacity_bytes / GIB, highest)
    return figure


def _highest_gib(courses: Sequence[RankTimeline], memory: MemoryEstimate) -> float:
    """The top of the panels: a little above the capacity, or above the highest peak where that is far from the capacity."""
    peak = max(float(each.total.max()) for each in courses)
    filled = peak >= LEAST_FILLED * memory.capacity_bytes
    return (max(memory.capacity_bytes, peak) * 1.06 if filled else peak * 1.3) / GIB


def _panel(axes: Axes, each: RankTimeline, memory: MemoryEstimate, highest: float, length: float) -> None:
    _stack(axes, each, highest)
    axes.set_xlim(0, length)
    axes.set_ylim(0, highest)
    axes.axhline(memory.capacity_bytes / GIB, color="#b3261e", linewidth=1.0, linestyle=(0, (4, 2)))
    total = each.total
    top = int(np.argmax(total))
    middle, peak = float(each.start_us[top] + each.end_us[top]) / 2, float(total[top]) / GIB
    axes.plot([middle], [peak], marker="v", color="#222222", markersize=5, clip_on=False)
    near_end = middle > 0.85 * length
    axes.annotate(
        significant(peak),
        (middle, peak),
        textcoords="offset points",
        xytext=(-6 if near_end else 6, 1),
        size=8,
        ha="right" if near_end else "left",
    )
    axes.set_ylabel(f"rank {each.rank}\nGiB", fontsize=9)
    axes.tick_params(labelsize=8, colors="#666666")
    axes.xaxis.set_major_formatter(lambda time, _: duration(time))
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _stack(axes: Axes, each: RankTimeline, highest: float) -> None:
    """One area for each term, from 0 to the top of its layer: the highest first, each lower one over it."""
    edges, tops = _tops(each)
    for layer in reversed(range(len(STACKED_TERMS))):
        term = STACKED_TERMS[layer]
        first = _steps(tops[layer], highest * LEAST_STEP)
        levels = np.maximum.reduceat(tops[layer], first)
        places = np.append(edges[first], edges[-1])
        across = [places[0], *np.repeat(places, 2)[1:-1], places[-1]]
        (area,) = axes.fill(across, [0.0, *np.repeat(levels, 2), 0.0], color=COLOURS[term], linewidth=0)
        area.set_gid(f"rank {each.rank} {term}")


def _tops(each: RankTimeline) -> tuple[Floats, Floats]:
    """Edges of spans, and GiB from 0 to the top of each layer as (layers, spans).

    Of more than MOST_SPANS they are COLUMNS of equal time, each as high as the highest span in it, and dips narrower than
    DIP of them are filled: a comb of thousands of teeth looks like its outline.
    """
    tops = np.cumsum([each.terms[term] for term in STACKED_TERMS], axis=0) / GIB
    if tops.shape[1] <= MOST_SPANS:
        return np.append(each.start_us, each.end_us[-1]), tops
    edges = np.linspace(each.start_us[0], each.end_us[-1], COLUMNS + 1)
    first, last = spans_of_columns(each, edges)
    columns = np.stack([tops[:, low:high].max(axis=1) for low, high in zip(first, last, strict=True)], axis=1)
    around = np.pad(columns, ((0, 0), (DIP - 1, DIP - 1)), mode="edge")
    return edges, _windows(_windows(around).max(axis=-1)).min(axis=-1)


def spans_of_columns(each: RankTimeline, edges: Floats) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The first span in each column between the edges, and the one after its last."""
    first = np.searchsorted(each.end_us, edges[:-1], side="right")
    return first, np.maximum(np.searchsorted(each.start_us, edges[1:]), first + 1)


def _windows(levels: Floats) -> Floats:
    """Each DIP neighbouring columns, as (layers, windows, DIP)."""
    return np.lib.stride_tricks.sliding_window_view(levels, DIP, axis=1)


def _steps(levels: Floats, least: float) -> list[int]:
    """The first place of each stretch of levels that differ by less than `least`."""
    first, low, high = [0], levels[0], levels[0]
    for place, level in enumerate(levels.tolist()):
        low, high = min(low, level), max(high, level)
        if high - low >= least:
            first.append(place)
            low = high = level
    return first


def _legend(figure: Figure, height: float, capacity: float, highest: float) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    entries: list[Patch | Line2D] = [Patch(facecolor=COLOURS[term]) for term in STACKED_TERMS]
    entries.append(Line2D([], [], color="#b3261e", linestyle=(0, (4, 2)), linewidth=1.0))
    figure.legend(
        entries,
        [
            *STACKED_TERMS,
            "capacity" if capacity <= highest else f"capacity, {significant(capacity)} GiB, lies above the panels",
        ],
        loc="lower left",
        bbox_to_anchor=(LEFT / WIDTH, 0.1 / height),
        ncols=len(entries),
        frameon=False,
        fontsize=8.5,
        borderaxespad=0.0,
        columnspacing=1.2,
        handlelength=1.2,
    )
