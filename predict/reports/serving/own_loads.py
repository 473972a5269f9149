"""Loads of a real server beside their predictions, for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from predict.reports.text import figures_table
from sampling.number_text import signed_percent

if TYPE_CHECKING:
    from rich.console import RenderableType

TITLES = {"e2e": "E2E", "ttft": "TTFT", "tpot": "TPOT", "e2e_p90": "E2E p90"}


def own_loads_text(content: Mapping[str, Any]) -> RenderableType:
    """The content of `predict validate CONFIG… --json` of serving configs."""
    from rich.console import Group

    table = figures_table(
        "predicted, then served; ms, and predicted over measured less 1",
        ("load",),
        ("requests", "E2E", "served", "error", "TTFT", "served", "error", "TPOT", "served", "error", "spread", "pace"),
    )
    for row in content["rows"]:
        cells = [row["load"], str(row["requests"])]
        for figure in ("e2e", "ttft", "tpot"):
            cells += [
                f"{row['predicted_ms'][figure]:.1f}",
                f"{row['measured_ms'][figure]:.1f}",
                signed_percent(row["errors"][figure]),
            ]
        table.add_row(*map(escape, cells), f"{row['spread']['e2e']:.0%}", f"{median(row['paces']):.2f}")
    means = ", ".join(f"{title} {content['summary'][figure]:.1%}" for figure, title in TITLES.items())
    paced = ", ".join(f"{title} {content['summary']['paced'][figure]:.1%}" for figure, title in TITLES.items())
    bias = ", ".join(f"{title} {signed_percent(content['bias'][figure])}" for figure, title in TITLES.items())
    kernels = ", ".join(f"{share:.0%} {source}" for source, share in content["kernels"].items())
    waited = sum(row["waited_s"] for row in content["rows"])
    return Group(
        table,
        "",
        f"mean error: {means}",
        f"with each round at the pace of the machine when the model was fitted: {paced}",
        f"bias: {bias}",
        f"90 % interval of mean E2E covers {content['summary']['coverage']:.0%} of the loads",
        f"rests on {escape(content['source'])} (half-width {content['half_width']:.0%}); kernels {kernels}",
        f"served: the median of {content['rows'][0]['rounds']} rounds; spread: their largest E2E over their smallest, less 1; pace: the time of "
        f"chosen steps just before the load, over the model's; {waited:.0f} s in which other processes had the core are not counted",
    )
