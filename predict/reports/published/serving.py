"""Measured serving runs beside their predictions, as tables for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from predict.reports.serving.own_loads import TITLES
from predict.reports.text import figures_table
from sampling.files.faults import counted
from sampling.number_text import percent, signed_percent

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

WORST = 10


def serving_validation_text(content: Mapping[str, Any]) -> RenderableType:
    """The content of `predict validate serving --json` for a terminal."""
    from rich.console import Group

    summary, rows = content["summary"], content["rows"]
    judged = [row for row in rows if row["regime"] == "sub" and row["errors"]["e2e"] is not None]
    worst = sorted(judged, key=lambda row: -abs(row["errors"]["e2e"]))[:WORST]
    refitted = sum(bool(row["fitted_without"]) for row in rows)
    parts: list[RenderableType] = [
        f"model {content['model']}: {len(judged)} stages below saturation; an error is |predicted mean / measured mean − 1|, averaged over stages",
        f"{refitted} of {len(rows)} stages are predicted by coefficients that were fitted without their experiment",
        "",
        _groups(content),
        "",
        f"90 % interval of mean E2E covers {_percent(summary['coverage'])} of the stages",
        "",
        _rows(worst),
    ]
    if content["capacities"]:
        parts += ["", _capacities(content)]
    if content["closed_loop"]["by_group"]:
        parts += ["", _closed_loop(content["closed_loop"])]
    left_out = list(_left_out(content))
    return Group(*parts, *(["", "not predicted, or not judged", *map(escape, left_out)] if left_out else []))


def _left_out(content: Mapping[str, Any]) -> Iterator[str]:
    """Each reason once, with how much it leaves out."""
    for one in content["refused"]:
        yield f"  {one['experiment']}, stage {one['stage']}: {one['why']}"
    rows: Counter[str] = Counter()
    for one in content["closed_loop"]["refused"]:
        rows[one["why"]] += one["rows"]
    for why, count in rows.most_common():
        yield f"  {counted(count, 'row')} of closed loops: {why}"
    for name, one in content["closed_loop"]["by_group"].items():
        if one["left_out"]:
            yield f"  {name}: {one['left_out']}"


def _groups(content: Mapping[str, Any]) -> Table:
    """The mean errors of all stages, then by GPU, by model and by source."""
    table = figures_table("mean errors", ("by", "of"), ("stages", *TITLES.values()))
    judged = sum(group["rows"] for group in content["by_gpu"].values())
    transfer, replay = content["transfer"], content["replay"]
    real = {"real requests": {"rows": replay["stages"], **replay}} if replay["stages"] else {}
    kinds: dict[str, Mapping[str, Any]] = {
        "all": {"": {"rows": judged, **content["summary"]}},
        "GPU": content["by_gpu"],
        f"fitted on {transfer['fitted_on']}": transfer["by_gpu"],
        "model": content["by_model"],
        "source": {name: group for name, group in content["by_source"].items() if name},
        "arrivals": real,
    }
    for kind, groups in kinds.items():
        for place, (name, group) in enumerate(groups.items()):
            figures = (_percent(group[figure]) for figure in TITLES)
            table.add_row(escape(kind) if not place else "", escape(name), str(group["rows"]), *figures)
        if kind == "all":
            bias = (_percent(content["bias"][figure], signed=True) for figure in TITLES)
            table.add_row("", "bias", "", *bias)
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
            "within" if one["error"] == 0 else _percent(one["error"], signed=True),
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
