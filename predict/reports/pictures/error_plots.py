"""Errors of predicted runs over what the runs differ in: a plot each, in one figure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, TypeAlias

from predict.reports.palette import ACCENT, INK, LIMIT, LINE, SOFT
from predict.validation.compared import grouped
from predict.validation.published import Comparison
from predict.validation.published_scores import KEYS
from sampling.files.faults import counted
from sampling.number_text import plain, signed_percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE, GRID = (11.0, 9.5), (3, 2)
"""Inches, and rows and columns of plots."""
WIDEST = 0.6
"""Error beyond which a run is drawn at the edge."""
FEWEST = 3
"""Runs of which a median is drawn."""
BESIDE = 0.6
"""Width of the band in which runs of one name lie beside each other, of the distance of two names."""

Figured: TypeAlias = Callable[[Comparison], "float | None"]


def _per_gpu(one: Comparison) -> float | None:
    sequences, gpus = one.row.number("gbs"), one.row.number("n_gpus")
    return sequences / gpus if sequences and gpus else None


FIGURES: Mapping[str, Figured] = {
    "sequences of the global batch per GPU": _per_gpu,
    "tokens a sequence": lambda one: one.row.number("seq_len"),
    "GPUs": lambda one: one.row.number("n_gpus"),
}
"""Heading of a plot over figures, by powers of two, and the figure of a run."""
NAMES: Mapping[str, str] = {"precision": "precision", "device": "gpu"}
"""Heading of a plot over names, and the key of `published_scores.KEYS` that names a run."""


def errors_figure(configurations: Sequence[Comparison]) -> Figure:
    """The errors of configurations over batch per GPU, sequence length, GPUs, precision and device."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE, facecolor="white")
    axes = figure.subplots(*GRID, squeeze=True).ravel()
    for own, (heading, of) in zip(axes, FIGURES.items(), strict=False):
        _over_figures(own, configurations, heading, of)
    for own, (heading, key) in zip(axes[len(FIGURES) :], NAMES.items(), strict=False):
        _over_names(own, configurations, heading, KEYS[key])
    for own in axes[len(FIGURES) + len(NAMES) :]:
        own.set_axis_off()
    figure.subplots_adjust(left=0.075, right=0.975, top=0.91, bottom=0.06, hspace=0.33, wspace=0.16)
    about = counted(len(configurations), "configuration")
    figure.text(
        0.075, 0.97, f"predicted over measured, less 1: {about}", size=11.5, weight="bold", va="center", color=INK
    )
    note = "blue: inside the 90 % interval; red: outside; line: the median of each step or name"
    figure.text(0.075, 0.945, note, size=8.5, va="center", color=SOFT)
    return figure


def _over_figures(axes: Axes, runs: Sequence[Comparison], heading: str, of: Figured) -> None:
    """Errors over a figure on a logarithmic axis, with the median of each power of two."""
    placed = [(figure, one) for one in runs if (figure := of(one))]
    _points(axes, placed, heading)
    steps = grouped(placed, lambda each: round(math.log2(each[0])))
    medians = [
        (2.0**step, median(one.error for _, one in own)) for step, own in sorted(steps.items()) if len(own) >= FEWEST
    ]
    if medians:
        axes.plot(*zip(*medians, strict=True), color=INK, linewidth=1.2, gid=f"median {heading}")
    if placed:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda figure, _: plain(figure))
    axes.set_xlabel(heading, fontsize=9)


def _over_names(axes: Axes, runs: Sequence[Comparison], heading: str, of: Callable[[Comparison], str]) -> None:
    """Errors by name, those of one name beside each other in the order of the table."""
    by_name = sorted(grouped(runs, of).items())
    placed = [
        (place + BESIDE * ((index + 0.5) / len(own) - 0.5), one)
        for place, (_, own) in enumerate(by_name)
        for index, one in enumerate(own)
    ]
    _points(axes, placed, heading)
    for place, (_, own) in enumerate(by_name):
        level = median(one.error for one in own)
        ends = place - BESIDE / 2, place + BESIDE / 2
        axes.plot(ends, (level, level), color=INK, linewidth=1.2, gid=f"median {heading}")
    axes.set_xticks(range(len(by_name)), [name for name, _ in by_name], rotation=30 if len(by_name) > 4 else 0)
    axes.set_xlabel(heading, fontsize=9)


def _points(axes: Axes, placed: Sequence[tuple[float, Comparison]], heading: str) -> None:
    for covered, colour in ((True, ACCENT), (False, LIMIT)):
        drawn = [(x, max(-WIDEST, min(WIDEST, one.error))) for x, one in placed if one.covered == covered]
        if drawn:
            across, up = zip(*drawn, strict=True)
            axes.scatter(across, up, s=12, color=colour, alpha=0.55, linewidths=0, gid=f"{heading} {covered}")
    axes.axhline(0.0, color=SOFT, linewidth=0.8)
    axes.set_ylim(-1.05 * WIDEST, 1.05 * WIDEST)
    axes.yaxis.set_major_formatter(lambda error, _: signed_percent(error, decimals=0))
    axes.grid(axis="y", color=LINE, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8.5, colors=SOFT)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
