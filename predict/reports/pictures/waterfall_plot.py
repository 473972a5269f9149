"""A plot of a step as a waterfall: each class of work begins where the one before ends, with its 90 % interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from predict.ledger.waterfall import waterfall
from predict.reports.palette import CLASS_COLOURS, INK, LINE, PHASE_COLOURS, SOFT
from predict.reports.pictures.figure_file import lines_within
from predict.reports.text import run_text
from predict.rl.phases import Phase
from predict.step.prediction import Prediction
from sampling.number_text import duration, durations

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from predict.interval import Interval

WIDTH, ROW, ABOVE, BELOW, LEFT, RIGHT = 9.0, 0.34, 0.75, 0.5, 1.25, 2.0
"""Inches."""
FILLED = 0.66
"""Share of a row that its bar fills."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DrawnBar:
    """A row of a waterfall, in µs; its bounds count from its start."""

    name: str
    start_us: float
    time_us: float
    low_us: float
    high_us: float
    colour: str

    @classmethod
    def of_phase(cls, phase: Phase, start_us: float) -> DrawnBar:
        """The row of a phase of an RL step."""
        time = phase.time
        return cls(
            name=phase.name,
            start_us=start_us,
            time_us=time.median_us,
            low_us=time.low_us,
            high_us=time.high_us,
            colour=PHASE_COLOURS[phase.name],
        )


def waterfall_figure(prediction: Prediction) -> Figure:
    """A row for each class of a step's work and one for the step; times and intervals stand at the right."""
    bars = waterfall(prediction)
    starts = accumulate((bar.time_us for bar in bars), initial=0.0)
    found = [
        DrawnBar(
            name=bar.name,
            start_us=start_us,
            time_us=bar.time_us,
            low_us=bar.low_us,
            high_us=bar.high_us,
            colour=CLASS_COLOURS[bar.name],
        )
        for bar, start_us in zip(bars, starts, strict=False)
    ]
    title, about = f"step of {prediction.run.name}", run_text(prediction.run)
    return bars_figure(found, prediction.step_time, title=title, about=about)


def bars_figure(bars: Sequence[DrawnBar], step: Interval, *, title: str, about: str) -> Figure:
    """A row for each bar and one for the step."""
    from matplotlib.figure import Figure

    height = ABOVE + ROW * (len(bars) + 1) + BELOW
    figure = Figure(figsize=(WIDTH, height), facecolor="white")
    inner = WIDTH - LEFT - RIGHT
    axes = figure.add_axes((LEFT / WIDTH, BELOW / height, inner / WIDTH, (height - ABOVE - BELOW) / height))
    for row, bar in enumerate(bars):
        axes.barh(row, bar.time_us, left=bar.start_us, height=FILLED, color=bar.colour, gid=bar.name)
        _whisker(axes, row, bar.start_us + bar.low_us, bar.start_us + bar.high_us)
        _figures(axes, row, bar.time_us, bar.low_us, bar.high_us)
    last = len(bars)
    axes.barh(last, step.median_us, height=FILLED, color=LINE, gid="step")
    _whisker(axes, last, step.low_us, step.high_us)
    _figures(axes, last, step.median_us, step.low_us, step.high_us)
    axes.set_xlim(0, max(step.high_us, *(bar.start_us + bar.high_us for bar in bars)))
    axes.set_ylim(last + 0.6, -0.6)
    axes.set_yticks(range(last + 1), [*(bar.name for bar in bars), "step"], fontsize=9)
    plain_axis(axes, duration)
    heading(figure, height, title=title, about=about)
    return figure


def plain_axis(axes: Axes, show: Callable[[float], str]) -> None:
    """An axis from left to right without lines, whose figures `show` writes."""
    axes.xaxis.set_major_formatter(lambda figure, _: show(figure))
    axes.tick_params(labelsize=9, length=0)
    axes.tick_params(axis="x", labelsize=8, labelcolor=SOFT)
    for side in ("top", "right", "bottom"):
        axes.spines[side].set_visible(False)


def heading(figure: Figure, height: float, *, title: str, about: str) -> None:
    """The lines above a picture of WIDTH."""
    figure.text(LEFT / WIDTH, 1 - 0.22 / height, title, size=11.5, weight="bold", va="center")
    (line, *_) = lines_within(about, inches=WIDTH - LEFT, points=8.5)
    figure.text(LEFT / WIDTH, 1 - 0.45 / height, line, size=8.5, color=SOFT, va="center")


def _whisker(axes: Axes, row: float, low: float, high: float) -> None:
    axes.plot([low, high], [row, row], color=INK, linewidth=1.1, marker="|", markersize=6)


def _figures(axes: Axes, row: float, time_us: float, low_us: float, high_us: float) -> None:
    where: dict[str, Any] = {
        "xycoords": ("axes fraction", "data"),
        "textcoords": "offset points",
        "ha": "right",
        "va": "center",
    }
    axes.annotate(duration(time_us), (1, row), xytext=(55, 0), size=9, weight="bold", annotation_clip=False, **where)
    bounds = durations(low_us, high_us)
    axes.annotate(bounds, (1, row), xytext=(138, 0), size=8, color=SOFT, annotation_clip=False, **where)
