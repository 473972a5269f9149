"""A plot of plans: throughput against memory, with the front of the two and the device's capacity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from predict.reports.palette import ACCENT, INK, LIMIT, LINE, SOFT
from sampling.units import GIB

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE = (9.0, 5.0)
"""Inches."""


def pareto_figure(rows: Sequence[Mapping[str, Any]], *, capacity_bytes: float, title: str) -> Figure:
    """The figure of rows of `predict.reports.page.content`; those that cannot run are left out."""
    from matplotlib.figure import Figure

    run = [row for row in rows if "reason" not in row]
    figure = Figure(figsize=SIZE, facecolor="white")
    axes = figure.add_axes((0.1, 0.13, 0.86, 0.75))
    front = sorted((row for row in run if row["front"]), key=lambda row: float(row["memory_bytes"]))
    axes.plot(*zip(*map(_place, front), strict=True), color=ACCENT, linewidth=1.2, zorder=1, gid="front")
    for place, row in enumerate(run):
        _mark(axes, row, lower=any(_close(row, other, run) for other in run[:place]))
    if capacity_bytes < 1.6 * max(row["memory_bytes"] for row in run):
        axes.axvline(capacity_bytes / GIB, color=LIMIT, linestyle=(0, (4, 2)), linewidth=1.1)
        axes.annotate(
            "capacity",
            (capacity_bytes / GIB, 1),
            xycoords=("data", "axes fraction"),
            xytext=(4, -2),
            textcoords="offset points",
            size=8.5,
            color=LIMIT,
            va="top",
        )
    axes.set_xlabel("memory per GPU, GiB", fontsize=9)
    axes.set_ylabel("tokens per second and GPU", fontsize=9)
    axes.yaxis.set_major_formatter(lambda rate, _: f"{rate:,.0f}")
    axes.grid(axis="y", color=LINE, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.margins(0.12)
    axes.tick_params(labelsize=8.5, colors=SOFT)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.text(0.1, 0.955, title, size=11.5, weight="bold", va="center")
    figure.text(
        0.1, 0.912, "line: no other plan is as fast with less memory; hollow: does not fit", size=8.5, color=SOFT
    )
    return figure


def _place(row: Mapping[str, Any]) -> tuple[float, float]:
    return row["memory_bytes"] / GIB, row["tokens_per_second_per_gpu"]


def _close(row: Mapping[str, Any], other: Mapping[str, Any], run: Sequence[Mapping[str, Any]]) -> bool:
    """Whether labels at the same side of two plans would overlap."""
    across, up = (max(each) - min(each) or 1.0 for each in zip(*map(_place, run), strict=True))
    (x, y), (other_x, other_y) = _place(row), _place(other)
    return abs(x - other_x) < 0.13 * across and abs(y - other_y) < 0.04 * up


def _mark(axes: Axes, row: Mapping[str, Any], *, lower: bool) -> None:
    """A plan's point and its label, above it or below."""
    own, oom = row.get("own", False), row["verdict"] == "OOM"
    colour = INK if own else ACCENT if row["front"] else SOFT
    axes.plot(
        *([each] for each in _place(row)),
        marker="o",
        markersize=8 if own else 6,
        markerfacecolor="white" if oom else colour,
        markeredgecolor=LIMIT if oom else colour,
        linestyle="none",
        zorder=2,
        gid=f"plan {row['label']}",
    )
    weight = "bold" if own else "normal"
    axes.annotate(
        row["label"], _place(row), xytext=(7, -11 if lower else 4), textcoords="offset points", size=8.5, weight=weight
    )
