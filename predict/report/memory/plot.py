"""A plot of memory over a step: one panel per pipeline rank, its terms stacked, and the device's capacity as a line."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from predict.memory.estimate import GIB, MemoryEstimate
from predict.memory.memory_timeline import STACKED_TERMS, RankTimeline
from predict.report.units import duration
from predict.schedules.files.order_files import require_suffix
from sampling.files.disk import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".svg", ".png")
COLOURS = {
    "device": "#c9ccd3",
    "slack": "#e0e2e7",
    "buffers": "#a3a9b5",
    "parameters": "#27406e",
    "optimizer": "#3f73d0",
    "gradients": "#22b3c4",
    "activations": "#43a053",
    "working": "#efa92f",
}
DOTS_PER_INCH = 150
WIDTH, PANEL, TOP, BOTTOM, LEFT, RIGHT = 11.0, 1.55, 0.65, 0.8, 0.95, 0.3
"""Inches."""
MOST_PANELS = 16
MOST_SPANS = 4000
"""Spans of one rank that are drawn individually; of more spans, only the highest of each of this many groups is."""


def save_memory_plot(courses: Sequence[RankTimeline], memory: MemoryEstimate, path: Path) -> None:
    """Draw to a .svg or .png file; UserError for another suffix."""
    require_suffix(path, SUFFIXES)
    from matplotlib import rc_context

    suffix = path.suffix.lower()
    content = BytesIO()
    with rc_context(
        {"svg.hashsalt": "memory", "svg.fonttype": "none", "text.parse_math": False, "font.family": ["sans-serif"]}
    ):
        title = f"memory of {memory.run.name} over a step"
        metadata = {"Date": None, "Title": title} if suffix == ".svg" else {"Title": title}
        _figure(courses, memory, title).savefig(content, format=suffix[1:], dpi=DOTS_PER_INCH, metadata=metadata)
    write_atomically(path, content.getvalue())


def _shown(courses: Sequence[RankTimeline], worst: int) -> list[RankTimeline]:
    """All ranks, or up to MOST_PANELS of them, evenly spread, with the first, the last and the worst."""
    if len(courses) <= MOST_PANELS:
        return list(courses)
    chosen = {round(place) for place in np.linspace(0, len(courses) - 1, MOST_PANELS - 1)} | {worst}
    return [courses[rank] for rank in sorted(chosen)]


def _figure(courses: Sequence[RankTimeline], memory: MemoryEstimate, title: str) -> Figure:
    from matplotlib.figure import Figure

    shown = _shown(courses, memory.worst.rank)
    height = TOP + PANEL * len(shown) + BOTTOM
    figure = Figure(figsize=(WIDTH, height), facecolor="white")
    highest = max([memory.capacity_bytes, *(float(each.total.max()) for each in courses)]) / GIB * 1.06
    length = max(float(each.end_us[-1]) for each in courses)
    width = (WIDTH - LEFT - RIGHT) / WIDTH
    for place, each in enumerate(shown):
        bottom = height - TOP - PANEL * (place + 1) + 0.16
        axes = figure.add_axes((LEFT / WIDTH, bottom / height, width, (PANEL - 0.22) / height))
        _panel(axes, each, memory, highest, length)
        is_last = place == len(shown) - 1
        axes.tick_params(axis="x", labelbottom=is_last)
        if is_last:
            axes.set_xlabel("time", fontsize=9)
    above = 1 - 0.3 / height
    figure.text(LEFT / WIDTH, above, title, size=11.5, weight="bold", va="center")
    verdict = f"{memory.verdict}: {memory.point_bytes / GIB:,.1f} of {memory.capacity_bytes / GIB:,.1f} GiB"
    figure.text(1 - RIGHT / WIDTH, above, verdict, size=9.5, ha="right", va="center")
    _legend(figure, height)
    return figure


def _panel(axes: Axes, each: RankTimeline, memory: MemoryEstimate, highest: float, length: float) -> None:
    start, end, terms = _thinned(each)
    edges = np.stack([start, end], axis=1).ravel()
    stacked = [np.repeat(terms[term] / GIB, 2) for term in STACKED_TERMS]
    areas = axes.stackplot(edges, stacked, colors=[COLOURS[term] for term in STACKED_TERMS], linewidth=0)
    for term, area in zip(STACKED_TERMS, areas, strict=True):
        area.set_gid(f"rank {each.rank} {term}")
    axes.set_xlim(0, length)
    axes.set_ylim(0, highest)
    axes.axhline(memory.capacity_bytes / GIB, color="#b3261e", linewidth=1.0, linestyle=(0, (4, 2)))
    total = each.total
    top = int(np.argmax(total))
    middle, peak = float(each.start_us[top] + each.end_us[top]) / 2, float(total[top]) / GIB
    axes.plot([middle], [peak], marker="v", color="#222222", markersize=5, clip_on=False)
    near_end = middle > 0.85 * length
    axes.annotate(
        f"{peak:,.1f}",
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


def _thinned(each: RankTimeline) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Starts, ends and terms of the spans, or of groups of them, each group by the span that holds the most."""
    spans = len(each.start_us)
    if spans <= MOST_SPANS:
        return each.start_us, each.end_us, each.terms
    total = each.total
    stretches = np.array_split(np.arange(spans), MOST_SPANS)
    chosen = np.array([stretch[np.argmax(total[stretch])] for stretch in stretches])
    starts = each.start_us[[stretch[0] for stretch in stretches]]
    ends = each.end_us[[stretch[-1] for stretch in stretches]]
    return starts, ends, {term: sizes[chosen] for term, sizes in each.terms.items()}


def _legend(figure: Figure, height: float) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    entries: list[Patch | Line2D] = [Patch(facecolor=COLOURS[term]) for term in STACKED_TERMS]
    entries.append(Line2D([], [], color="#b3261e", linestyle=(0, (4, 2)), linewidth=1.0))
    figure.legend(
        entries,
        [*STACKED_TERMS, "capacity"],
        loc="lower left",
        bbox_to_anchor=(LEFT / WIDTH, 0.1 / height),
        ncols=len(entries),
        frameon=False,
        fontsize=8.5,
        borderaxespad=0.0,
        columnspacing=1.2,
        handlelength=1.2,
    )
