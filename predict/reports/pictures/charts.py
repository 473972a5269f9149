"""Charts of several answers: a heat map of throughput, plans by throughput and memory, latencies over the rate of requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from predict.reports.palette import ACCENT, INK, LIMIT, LINE, SOFT
from sampling.number_text import count
from sampling.units import GIB

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from predict.interval import Interval
    from predict.serving.loaded_server import LoadOutcome


CELL_WIDTH, CELL_HEIGHT, ABOVE, BELOW, LEFT, RIGHT = 1.25, 0.5, 0.7, 0.7, 1.0, 0.3
"""Inches."""
DARK = 0.55
"""Share of the best throughput from which on a cell's text is white."""
LEAST_WIDTH = 7.0
"""Width in inches that the note above the cells needs."""


def heat_map_figure(view: Mapping[str, Any], *, title: str) -> Figure:
    """The figure of `predict.reports.page.content.heat_map_view`; the run's own cell is outlined."""
    from matplotlib.figure import Figure

    sequences, micros = view["sequences"], view["microbatches"]
    width = max(LEAST_WIDTH, LEFT + CELL_WIDTH * len(sequences) + RIGHT)
    height = ABOVE + CELL_HEIGHT * len(micros) + BELOW
    figure = Figure(figsize=(width, height), facecolor="white")
    inner = (width - LEFT - RIGHT) / width
    axes = figure.add_axes((LEFT / width, BELOW / height, inner, CELL_HEIGHT * len(micros) / height))
    fitting = [cell["tokens_per_second_per_gpu"] for cell in view["cells"] if cell.get("verdict", "OOM") != "OOM"]
    for cell in view["cells"]:
        place = sequences.index(cell["sequence"]), micros.index(cell["microbatch"])
        own = [cell["sequence"], cell["microbatch"]] == view["own"]
        _cell(axes, place, cell, max(fitting, default=1.0), own=own)
    axes.set_xlim(-0.5, len(sequences) - 0.5)
    axes.set_ylim(-0.5, len(micros) - 0.5)
    axes.set_xticks(range(len(sequences)), [f"{length:,}" for length in sequences])
    axes.set_yticks(range(len(micros)), list(map(str, micros)))
    axes.set_xlabel(view["column"], fontsize=9)
    axes.set_ylabel(view["row"], fontsize=9)
    axes.tick_params(length=0, labelsize=9)
    for spine in axes.spines.values():
        spine.set_visible(False)
    figure.text(LEFT / width, 1 - 0.22 / height, title, size=11.5, weight="bold", va="center")
    note = f"{view['note']}; hatched: does not fit; –: cannot run"
    figure.text(LEFT / width, 1 - 0.46 / height, note, size=8.5, color=SOFT, va="center")
    return figure


def _cell(axes: Axes, place: tuple[int, int], cell: Mapping[str, Any], best: float, *, own: bool) -> None:
    from matplotlib import colormaps
    from matplotlib.patches import Rectangle

    verdict, rate = cell.get("verdict"), cell.get("tokens_per_second_per_gpu", 0.0)
    fits = verdict in ("FITS", "AT RISK")
    share = min(1.0, rate / best) if fits else 0.0
    box = Rectangle(
        (place[0] - 0.49, place[1] - 0.47),
        0.98,
        0.94,
        facecolor=colormaps["Blues"](0.1 + 0.75 * share) if fits else "white",
        edgecolor=INK if own else LIMIT if verdict == "OOM" else LINE,
        linewidth=2.0 if own else 0.5,
        hatch="////" if verdict == "OOM" else None,
        gid=f"{verdict or 'none'} {cell['sequence']} {cell['microbatch']}",
    )
    axes.add_patch(box)
    text = count(rate) if fits else "OOM" if verdict == "OOM" else "–"
    behind = {"facecolor": "white", "edgecolor": "none", "pad": 1.5} if verdict == "OOM" else None
    axes.text(*place, text, ha="center", va="center", size=9, color="white" if share > DARK else INK, bbox=behind)


# Plans: throughput against memory, with the front of the two and the device's capacity.

FRONT_SIZE = (9.0, 5.0)
"""Inches."""


def pareto_figure(rows: Sequence[Mapping[str, Any]], *, capacity_bytes: float, title: str) -> Figure:
    """The figure of rows of `predict.reports.page.content`; those that cannot run are left out."""
    from matplotlib.figure import Figure

    run = [row for row in rows if "reason" not in row]
    figure = Figure(figsize=FRONT_SIZE, facecolor="white")
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
    axes.yaxis.set_major_formatter(lambda rate, _: count(rate))
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


# A server's latencies over the rate of requests, with intervals and where the queue grows.

LOADS_SIZE = (10.5, 4.0)
"""Inches."""
PANELS = (("e2e", "E2E, s", 1e6), ("ttft", "TTFT, ms", 1e3), ("tpot", "TPOT, ms", 1e3))
"""Figure, its axis, and µs in the axis's unit."""
NOTE = (
    "line: mean, with its 90 % interval; dashed: p90; hollow: the queue grows, so that a longer load would wait longer"
)


def sweep_figure(outcomes: Sequence[LoadOutcome], capacity: Interval | None, *, title: str) -> Figure:
    """Three panels over the rates of the outcomes; the capacity with its interval where it was sought."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=LOADS_SIZE, facecolor="white")
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
    note = NOTE + ("; upright: capacity" if capacity else "")
    figure.text(0.065, 0.88, note, size=8.5, color=SOFT, va="center")
    return figure


def _panel(axes: Axes, outcomes: Sequence[LoadOutcome], name: str, unit_us: float) -> None:
    rates = [one.load.rate for one in outcomes]
    means = [one.mean_us(name) for one in outcomes]
    low, mean, high = ([getattr(each, of) / unit_us for each in means] for of in ("low", "median", "high"))
    p90 = [getattr(one.latency, name).percentiles_us[90] / unit_us for one in outcomes]
    axes.fill_between(rates, low, high, color=ACCENT, alpha=0.15, linewidth=0)
    axes.plot(rates, p90, color=ACCENT, linestyle=(0, (3, 2)), linewidth=1.0, gid=f"{name} p90")
    axes.plot(rates, mean, color=ACCENT, linewidth=1.4, gid=f"{name} mean")
    for rate, value, one in zip(rates, mean, outcomes, strict=True):
        face = "white" if one.grows else ACCENT
        axes.plot(
            [rate], [value], marker="o", markersize=5, markerfacecolor=face, markeredgecolor=ACCENT, linestyle="none"
        )
