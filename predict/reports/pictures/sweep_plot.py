"""A plot of a server's latencies over the rate of requests, with intervals and where the queue grows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from predict.reports.palette import ACCENT, LIMIT, LINE, SOFT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from predict.interval import Interval
    from predict.serving.loaded_server import Outcome

SIZE = (10.5, 4.0)
"""Inches."""
PANELS = (("e2e", "E2E, s", 1e6), ("ttft", "TTFT, ms", 1e3), ("tpot", "TPOT, ms", 1e3))
"""Figure, its axis, and µs in the axis's unit."""
NOTE = (
    "line: mean, with its 90 % interval; dashed: p90; hollow: the queue grows, so that a longer load would wait longer"
)


def sweep_figure(outcomes: Sequence[Outcome], capacity: Interval | None, *, title: str) -> Figure:
    """Three panels over the rates of the outcomes; the capacity with its interval where it was sought."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE, facecolor="white")
    ordered = sorted(outcomes, key=lambda one: one.load.rate)
    for place, (name, label, unit_us) in enumerate(PANELS):
        axes = figure.add_axes((0.065 + 0.32 * place, 0.15, 0.265, 0.66))
        _panel(axes, ordered, name, unit_us)
        if capacity:
            axes.axvspan(capacity.low, capacity.high, color=LIMIT, alpha=0.12, linewidth=0)
            axes.axvline(capacity.median, color=LIMIT, linestyle=(0, (4, 2)), linewidth=1.1, gid="capacity")
        axes.set_xlabel("requests per second", fontsize=9)
        axes.set_ylabel(label, fontsize=9)
        axes.set_ylim(bottom=0)
        axes.grid(axis="y", color=LINE, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.tick_params(labelsize=8.5, colors=SOFT)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    figure.text(0.065, 0.95, title, size=11.5, weight="bold", va="center")
    told = NOTE + ("; upright: capacity" if capacity else "")
    figure.text(0.065, 0.88, told, size=8.5, color=SOFT, va="center")
    return figure


def _panel(axes: Axes, outcomes: Sequence[Outcome], name: str, unit_us: float) -> None:
    rates = [one.load.rate for one in outcomes]
    means = [[getattr(found, name).mean_us / unit_us for found in (one.low, one.latency, one.high)] for one in outcomes]
    low, mean, high = zip(*means, strict=True)
    p90 = [getattr(one.latency, name).percentiles_us[90] / unit_us for one in outcomes]
    axes.fill_between(rates, low, high, color=ACCENT, alpha=0.15, linewidth=0)
    axes.plot(rates, p90, color=ACCENT, linestyle=(0, (3, 2)), linewidth=1.0, gid=f"{name} p90")
    axes.plot(rates, mean, color=ACCENT, linewidth=1.4, gid=f"{name} mean")
    for rate, value, one in zip(rates, mean, outcomes, strict=True):
        face = "white" if one.grows else ACCENT
        axes.plot(
            [rate], [value], marker="o", markersize=5, markerfacecolor=face, markeredgecolor=ACCENT, linestyle="none"
        )
