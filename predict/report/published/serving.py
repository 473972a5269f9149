"""Measured serving runs beside their predictions, as tables for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from predict.report.tables import figures_table
from sampling.number_text import percent, signed_percent

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

WORST = 10
TITLES = {"e2e": "E2E", "ttft": "TTFT", "tpot": "TPOT", "e2e_p90": "E2E p90"}


def serving_validation_text(content: Mapping[str, Any]) -> RenderableType:
    """The content of `predict validate serving --json` for a terminal."""
    from rich.console import Group

    summary, rows = content["summary"], content["rows"]
    judged = [row for row in rows if row["regime"] == "sub" and row["errors"]["e2e"] is not None]
    worst = sorted(judged, key=lambda row: -abs(row["errors"]["e2e"]))[:WORST]
    refitted = sum(bool(row["fitted_without"]) for row in rows)
    parts: list[RenderableType] = [
        f"model {content['model']}: {len(judged)} stages below saturation, mean size of predicted over measured, less 1",
        f"{refitted} of {len(rows)} stages by coefficients that were fitted without their experiment",
        "",
        _groups(content),
        "",
        f"90 % interval of mean E2E covers {_percent(summary['coverage'])} of the stages",
    ]
    if content["capacities"]:
        parts += ["", _capacities(content)]
    if content["closed_loop"]["by_group"]:
        parts += ["", _closed_loop(content["closed_loop"])]
    left_out = [f"{one['experiment']}, stage {one['stage']}: {one['why']}" for one in content["refused"]]
    left_out += [f"{one['rows']} rows of {one['group']}: {one['why']}" for one in content["closed_loop"]["refused"]]
    left_out += [
        f"{name}: {one['left_out']}" for name, one in content["closed_loop"]["by_group"].items() if one["left_out"]
    ]
    return Group(
        *parts, "", _rows(worst), *(["", "not predicted, or not judged", *map(escape, left_out)] if left_out else [])
    )


def _groups(content: Mapping[str, Any]) -> Table:
    table = figures_table("", ("of",), ("stages", *TITLES.values()))
    judged = sum(group["rows"] for group in content["by_gpu"].values())
    named = {"all": {"rows": judged, **content["summary"]}, **content["by_gpu"], **content["by_model"]}
    named |= {name: group for name, group in content["by_source"].items() if name}
    if content["replay"]["stages"]:
        named["with their real requests"] = {"rows": content["replay"]["stages"], **content["replay"]}
    transfer = content["transfer"]
    named |= {f"{gpu}, fitted on {transfer['fitted_on']} alone": group for gpu, group in transfer["by_gpu"].items()}
    for name, group in named.items():
        table.add_row(escape(name), str(group["rows"]), *(_percent(group[figure]) for figure in TITLES))
    table.add_row("bias of all", "", *(_percent(content["bias"][figure], signed=True) for figure in TITLES))
    return table


def _capacities(content: Mapping[str, Any]) -> Table:
    table = figures_table(
        "capacity, requests per second", ("model", "GPU", "load"), ("predicted", "interval", "measured", "error")
    )
    for one in content["capacities"]:
        measured = f"{one['measured']:.2f}" if one["measured"] else _bracket(one)
        table.add_row(
            escape(f"{one['model']} tp {one['tp']}"),
            escape(one["gpu"]),
            escape(one["profile"]),
            f"{one['predicted']:.2f}",
            f"{one['low']:.2f}–{one['high']:.2f}",
            measured,
            _percent(one["error"], signed=True),
        )
    return table


def _closed_loop(content: Mapping[str, Any]) -> Table:
    table = figures_table(
        "closed loops: so many requests in flight", ("measured",), ("rows", "TPOT", "bias", "covered", "TTFT")
    )
    named = {**content["by_group"], "all judged": content["summary"]}
    for name, group in named.items():
        figures = _percent(group["tpot"]), _percent(group["tpot_bias"], signed=True), _percent(group["coverage"])
        table.add_row(escape(name), str(group["rows"]), *figures, _percent(group["ttft"]))
    return table


def _bracket(one: Mapping[str, Any]) -> str:
    above = f"{one['stable_rate']:g} or more" if one["stable_rate"] else ""
    below = f"less than {one['overloaded_rate']:g}" if one["overloaded_rate"] else ""
    return ", ".join(filter(None, (above, below)))


def _rows(rows: list[Mapping[str, Any]]) -> Table:
    table = figures_table(
        "the furthest off, mean E2E", ("experiment", "stage"), ("predicted", "measured", "E2E", "TTFT", "TPOT")
    )
    for row in rows:
        table.add_row(
            escape(row["experiment"]),
            str(row["stage"]),
            f"{row['predicted_ms']['e2e']:,.0f} ms",
            f"{row['measured_ms']['e2e']:,.0f} ms",
            *(_percent(row["errors"][figure], signed=True) for figure in ("e2e", "ttft", "tpot")),
        )
    return table


def _percent(share: float | None, *, signed: bool = False) -> str:
    if share is None:
        return "–"
    return signed_percent(share) if signed else percent(share)
