"""Plots of an RL step: its phases as a waterfall, what its GPUs do over the step, and their memory phase by phase."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from predict.reports.palette import INK, LIMIT, PHASE_COLOURS, ink
from predict.reports.pictures.memory_plot import COLOURS
from predict.reports.pictures.waterfall_plot import (
    ABOVE,
    BELOW,
    FILLED,
    LEFT,
    WIDTH,
    DrawnBar,
    bars_figure,
    heading,
    plain_axis,
)
from predict.reports.rl_step import headline
from predict.rl.books import spans
from predict.rl.memory import TERMS
from predict.rl.step import RlStep
from sampling.number_text import duration, plain, significant
from sampling.units import GIB

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROW, ROOM = 0.5, 0.3
"""Inches of a lane, and of the legend."""
LEAST_NAMED = 0.011
"""Share of the step per character of a phase's name from which on its box has room for it."""


def rl_waterfall_figure(step: RlStep) -> Figure:
    """A row for each phase, where it stands in the step, and one for the step."""
    starts = {span.name: span.start_us for span in spans(step)}
    bars = [DrawnBar.of_phase(phase, starts.get(phase.name, 0.0)) for phase in step.phases]
    return bars_figure(bars, step.time, title=f"RL step of {step.rl.name}", about=headline(step))


def rl_timeline_figure(step: RlStep) -> Figure:
    """A lane for the trainer and one for the engines, or one for both, with a box for each phase."""
    found = spans(step)
    lanes = list(dict.fromkeys(span.lane for span in found))
    figure, axes = _empty(len(lanes), title=f"placement of {step.rl.name}", about=headline(step))
    for span in found:
        colour = PHASE_COLOURS[span.name]
        row = lanes.index(span.lane)
        axes.barh(row, span.time_us, left=span.start_us, height=FILLED, color=colour, gid=f"{span.lane} {span.name}")
        if span.time_us > LEAST_NAMED * len(span.name) * step.time.median_us:
            middle = span.start_us + span.time_us / 2
            axes.text(middle, row, span.name, size=8, color=ink(colour), ha="center", va="center")
    axes.set_xlim(0, step.time.median_us)
    _rows(axes, lanes, duration)
    _legend(axes, {name: colour for name, colour in PHASE_COLOURS.items() if any(span.name == name for span in found)})
    return figure


def rl_memory_figure(step: RlStep) -> Figure:
    """A bar for each moment in which a GPU holds the most, its terms stacked, and the device's capacity as a line."""
    memory = step.memory
    capacity, peak = memory.capacity / GIB, memory.worst.peak / GIB
    title = f"memory per GPU of {step.rl.name}: {memory.verdict}, {significant(peak)} of {significant(capacity)} GiB"
    figure, axes = _empty(len(memory.moments), title=title, about=headline(step))
    for row, moment in enumerate(memory.moments):
        start = 0.0
        for term, size in moment.terms.items():
            axes.barh(row, size / GIB, left=start, height=FILLED, color=COLOURS[term], gid=f"{moment.phase} {term}")
            start += size / GIB
        axes.annotate(f" {significant(start)}", (start, row), size=9, va="center", color=INK)
    axes.axvline(capacity, color=LIMIT, linewidth=1.2, linestyle=(0, (4, 2)))
    axes.set_xlim(0, max(capacity, peak) * 1.08)
    _rows(axes, [moment.phase for moment in memory.moments], lambda size: f"{plain(size)} GiB")
    _legend(axes, {term: COLOURS[term] for term in TERMS if any(term in moment.terms for moment in memory.moments)})
    return figure


def _empty(rows: int, *, title: str, about: str) -> tuple[Figure, Axes]:
    """A figure with room for so many rows and a legend below them."""
    from matplotlib.figure import Figure

    height = ABOVE + ROW * rows + BELOW + ROOM
    figure = Figure(figsize=(WIDTH, height), facecolor="white")
    below, inner = (BELOW + ROOM) / height, (WIDTH - LEFT - 0.3) / WIDTH
    axes = figure.add_axes((LEFT / WIDTH, below, inner, ROW * rows / height))
    heading(figure, height, title=title, about=about)
    return figure, axes


def _rows(axes: Axes, names: list[str], show: Callable[[float], str]) -> None:
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_yticks(range(len(names)), names, fontsize=9)
    plain_axis(axes, show)


def _legend(axes: Axes, colours: dict[str, str]) -> None:
    from matplotlib.patches import Patch

    entries = [Patch(facecolor=colour) for colour in colours.values()]
    axes.legend(
        entries,
        list(colours),
        loc="upper left",
        bbox_to_anchor=(0.0, 0.0),
        bbox_transform=axes.transAxes,
        borderaxespad=2.4,
        ncols=len(entries),
        frameon=False,
        fontsize=7.5,
        columnspacing=0.9,
        handlelength=0.9,
        handletextpad=0.35,
    )
