"""A plot of throughput by sequence length and microbatch; cells that do not fit are hatched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from predict.reports.palette import INK, LIMIT, LINE, SOFT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CELL_WIDTH, CELL_HEIGHT, ABOVE, BELOW, LEFT, RIGHT = 1.25, 0.5, 0.7, 0.7, 1.0, 0.3
"""Inches."""
DARK = 0.55
"""Share of the best throughput from which on a cell's text is white."""
LEAST_WIDTH = 7.0
"""Width in inches that the note above the cells needs."""


def heat_map_figure(view: Mapping[str, Any], *, title: str) -> Figure:
    """The figure of `predict.reports.page.heat_map.heat_map_view`; the run's own cell is outlined."""
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
    text = f"{rate:,.0f}" if fits else "OOM" if verdict == "OOM" else "–"
    behind = {"facecolor": "white", "edgecolor": "none", "pad": 1.5} if verdict == "OOM" else None
    axes.text(*place, text, ha="center", va="center", size=9, color="white" if share > DARK else INK, bbox=behind)
