"""Published RL steps beside their predictions, as tables for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from predict.reports.text import figures_table
from sampling.number_text import signed_percent

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


def rl_validation_text(content: Mapping[str, Any]) -> RenderableType:
    """The content of `predict validate rl --json` for a terminal."""
    from rich.console import Group

    rows = content["rows"]
    refused = Counter(row["reason"] for row in rows if row["reason"])
    parts: list[RenderableType] = [
        f"{len(rows)} rows, {refused.total()} of which cannot be expressed; size of predicted over measured, less 1",
        "",
        _summary(content["summary"]),
        *_apart(
            content.get("summary_of_open_lengths", {}),
            "rows without a published mean of their responses' lengths, over likely ones",
        ),
        *_apart(content["summary_in_sample"], "in-sample: times that a term of the prediction was read from"),
        "",
        _rows(rows),
    ]
    order = content.get("order")
    if order and order["pairs"]:
        parts += ["", f"faster placement told in {order['right']:.0%} of {order['pairs']} pairs"]
    parts += ["", *_factors(content.get("factors", {}))]
    parts += ["", *(escape(f"{count} rows not expressed: {reason}") for reason, count in refused.most_common())]
    return Group(*parts)


def _factors(factors: Mapping[str, Any]) -> list[str]:
    """The shipped factors, and those that the rows they were fitted to give today; nothing without such rows."""
    if not factors.get("refit"):
        return []
    told = {name: f"{each['rollout']:.2f} on generation, {each['update']:.2f} on updates, {each['passes']:.2f} on passes, "
            f"half-width {each['half_width']:.2f}" for name, each in factors.items()}  # fmt: skip
    return [f"factors: {told['shipped']}; refitted to these rows: {told['refit']}"]


def _apart(summary: Mapping[str, Any], heading: str) -> list[RenderableType]:
    """Figures over rows that the first summary leaves out, under a heading; nothing where there are none."""
    if not any(figures["rows"] for figures in summary.values()):
        return []
    return ["", heading, "", _summary(summary)]


def _summary(summary: Mapping[str, Any]) -> Table:
    table = figures_table("", ("phase",), ("rows", "mean", "median", "bias", "in the interval"))
    for name, figures in summary.items():
        shares = [figures[key] for key in ("mean", "median", "bias", "coverage")]
        table.add_row(name, str(figures["rows"]), *("–" if share is None else f"{share:.1%}" for share in shares))
    return table


def _rows(rows: list[Mapping[str, Any]]) -> Table:
    table = figures_table(
        "", ("row", "model", "GPUs", "placement", "phase"), ("predicted", "interval", "measured", "error")
    )
    for row in rows:
        for name, phase in row["phases"].items():
            table.add_row(
                escape(row["row_id"]),
                escape(row["model"]),
                escape(f"{row['gpus']:g} {row['gpu']}") if row["gpus"] else "",
                row["mode"],
                f"{name} (in-sample)" if phase["in_sample"] else name,
                f"{phase['predicted_s']:.1f} s",
                f"{phase['low_s']:.1f}–{phase['high_s']:.1f}",
                f"{phase['measured_s']:.1f} s",
                signed_percent(phase["error"], decimals=0),
            )
    return table
