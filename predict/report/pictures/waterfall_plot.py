"""A plot of a step as a waterfall: each class of work begins where the one before ends, with its 90 % interval."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from predict.ledger.waterfall.bars import waterfall
from predict.report.pictures.figure_file import lines_within
from predict.report.pictures.palette import CLASS_COLOURS, INK, LINE, SOFT
from predict.report.run_text import run_text
from predict.report.units import duration, durations
from predict.step.prediction import Prediction

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, ROW, ABOVE, BELOW, LEFT, RIGHT = 9.0, 0.34, 0.75, 0.5, 1.25, 2.0
"""Inches."""
FILLED = 0.66
"""Share of a row that its bar fills."""


def waterfall_figure(prediction: Prediction) -> Figure:
    """A row for each class and one for the step; times and intervals stand at the right."""
    from matplotlib.figure import Figure

    bars, step = waterfall(prediction), prediction.step_time
    height = ABOVE + ROW * (len(bars) + 1) + BELOW
    figure = Figure(figsize=(WIDTH, height), facecolor="white")
    inner = WIDTH - LEFT - RIGHT
    axes = figure.add_axes((LEFT / WIDTH, BELOW / height, inner / WIDTH, (height - ABOVE - BELOW) / height))
    start = 0.0
    for row, bar in enumerate(bars):
        axes.barh(row, bar.time_us, left=start, height=FILLED, color=CLASS_COLOURS[bar.name], gid=bar.name)
        _whisker(axes, row, start + bar.low_us, start + bar.high_us)
        _figures(axes, row, bar.time_us, bar.low_us, bar.high_us)
        start += bar.time_us
    last = len(bars)
    axes.barh(last, step.median_us, height=FILLED, color=LINE, gid="step")
    _whisker(axes, last, step.low_us, step.high_us)
    _figures(axes, last, step.median_us, step.low_us, step.high_us)
    axes.set_xlim(0, max(step.high_us, *(bar.high_us for bar in bars)))
    axes.set_ylim(last + 0.6, -0.6)
    axes.set_yticks(range(last + 1), [*(bar.name for bar in bars), "step"], fontsize=9)
    axes.xaxis.set_major_formatter(lambda time, _: duration(time))
    axes.tick_params(labelsize=9, length=0)
    axes.tick_params(axis="x", labelsize=8, labelcolor=SOFT)
    for side in ("top", "right", "bottom"):
        axes.spines[side].set_visible(False)
    figure.text(
        LEFT / WIDTH, 1 - 0.22 / height, f"step of {prediction.run.name}", size=11.5, weight="bold", va="center"
    )
    (about, *_) = lines_within(run_text(prediction.run), inches=WIDTH - LEFT, points=8.5)
    figure.text(LEFT / WIDTH, 1 - 0.45 / height, about, size=8.5, color=SOFT, va="center")
    return figure


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
    told = durations(low_us, high_us)
    axes.annotate(told, (1, row), xytext=(138, 0), size=8, color=SOFT, annotation_clip=False, **where)
