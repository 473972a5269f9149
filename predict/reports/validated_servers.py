"""Measured servers next to predicted ones, from experiments and as published, for a terminal."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import Any

from predict.interval import Interval
from predict.reports.compared import INTERVAL, LATENCIES, beside, counts, furthest, itself, refused, share, shares
from predict.reports.printed import Renderable, Table
from predict.reports.text import Columns, escape, figures_table, stacked, table
from predict.validation.compared import Compared, Refused, scores
from predict.validation.published_servers import ComparedServer, PublishedServer
from sampling.files.faults import counted
from sampling.number_text import Show, multiple, percent, plain, signed_percent, significant


def serving_validation_text(content: Mapping[str, Any]) -> Renderable:
    """The content of `predict validate serving --json` for a terminal."""
    rows = content["rows"]
    judged = [row for row in rows if row["regime"] == "sub" and row["errors"]["e2e"] is not None]
    refitted = sum(bool(row["fitted_without"]) for row in rows)
    parts: list[Renderable] = [
        f"model {content['model']}: {len(judged)} stages below saturation; an error is |predicted mean / measured mean − 1|, averaged over stages",
        f"{refitted} of {len(rows)} stages are predicted by coefficients that were fitted without their experiment",
        "",
        _stages(content),
        "",
        f"90 % interval of mean E2E covers {share(content['summary']['coverage'])} of the stages",
        "",
        _furthest_stages(judged),
    ]
    if content["by_left_out_model"]:
        parts += ["", _left_out_models(content["by_left_out_model"])]
    if content["capacities"]:
        parts += ["", _capacities(content["capacities"])]
    if content["closed_loop"]["by_group"]:
        parts += ["", _closed_loops(content["closed_loop"]), "", _engine_versions(content["closed_loop"])]
    return stacked(*parts, *refused("not predicted, or not judged", _without_figures(content)))


def _without_figures(content: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for one in content["refused"]:
        yield f"{one['experiment']}, stage {one['stage']}", one["why"]
    loops = content["closed_loop"]
    yield from chain.from_iterable(repeat((one["group"], one["why"]), one["rows"]) for one in loops["refused"])
    for name, one in loops["by_group"].items():
        yield from repeat((name, one["left_out"]), one["rows"] if one["left_out"] else 0)


def _stages(content: Mapping[str, Any]) -> Table:
    """The mean errors of all stages, then by GPU, by model and by source."""
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
    found = figures_table("mean errors", ("by", "of"), ("stages", *LATENCIES))
    for kind, groups in kinds.items():
        for place, (name, group) in enumerate(groups.items()):
            means = (share(group[figure]) for figure in LATENCIES.values())
            found.add_row(escape(kind) if not place else "", escape(name), str(group["rows"]), *means)
        if kind == "all":
            bias = (share(content["bias"][figure], write=signed_percent) for figure in LATENCIES.values())
            found.add_row("", "bias", "", *bias)
    return found


def _left_out_models(groups: Mapping[str, Any]) -> Table:
    return table(
        "TPOT at the measured load, by weights to which no stage of the model was fitted",
        [{"name": name, **group} for name, group in groups.items()],
        {"model": lambda row: row["name"]},
        {
            **counts({"stages": "rows"}),
            "TPOT": lambda row: share(row["tpot"]),
            "bias": lambda row: share(row["tpot_bias"], write=signed_percent),
        },
    )


def _furthest_stages(judged: Sequence[Mapping[str, Any]]) -> Table:
    errors = {title: _signed_error(figure) for title, figure in LATENCIES.items() if figure in ("ttft", "tpot")}
    return table(
        "the furthest off, mean E2E",
        furthest(judged, _e2e),
        {"experiment": lambda row: row["experiment"], "stage": lambda row: str(row["stage"])},
        {**beside(_e2e), **errors},
    )


def _signed_error(figure: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda row: share(row["errors"][figure], write=signed_percent)


def _e2e(row: Mapping[str, Any]) -> Compared:
    predicted = row["predicted_ms"]
    times = Interval(median=predicted["e2e"], low=predicted["e2e_low"], high=predicted["e2e_high"])
    return Compared(predicted=times.scaled(1e3), measured=1e3 * row["measured_ms"]["e2e"])


def _capacities(capacities: Sequence[Mapping[str, Any]]) -> Table:
    columns = beside(_capacity, significant, lambda low, high: f"{significant(low)} to {significant(high)}")
    return table(
        "capacity, requests per second",
        capacities,
        {
            "model": lambda one: f"{one['model']} tp {one['tp']}",
            "GPU": lambda one: one["gpu"],
            "load": lambda one: one["profile"],
        },
        {
            "predicted": columns["predicted"],
            INTERVAL: columns[INTERVAL],
            "measured": lambda one: significant(one["measured"]) if one["measured"] else _bracket(one),
            "error": lambda one: "within" if one["error"] == 0 else share(one["error"], write=signed_percent),
        },
    )


def _capacity(one: Mapping[str, Any]) -> Compared:
    return Compared(
        predicted=Interval(median=one["predicted"], low=one["low"], high=one["high"]), measured=one["measured"]
    )


def _bracket(one: Mapping[str, Any]) -> str:
    above = f"{plain(one['stable_rate'])} or more" if one["stable_rate"] else ""
    below = f"less than {plain(one['overloaded_rate'])}" if one["overloaded_rate"] else ""
    return ", ".join(filter(None, (above, below)))


def _closed_loops(content: Mapping[str, Any]) -> Table:
    rows = [
        {"name": f"{name} (not judged)" if group["left_out"] else name, **group}
        for name, group in content["by_group"].items()
    ]
    return table(
        "closed loops: so many requests in flight",
        [*rows, {"name": "all judged", **content["summary"]}],
        {"measured": lambda row: row["name"]},
        {**counts({"rows": "rows"}), **shares(OF_LOOPS)},
    )


def _engine_versions(content: Mapping[str, Any]) -> Table:
    return table(
        "closed loops by engine and version, each by figures to which none of its rows was fitted",
        [{"name": name, **errors} for name, errors in content["by_version"].items()],
        {"engine": lambda row: row["name"]},
        {**counts({"rows": "rows"}), **shares({**OF_LOOPS, "bias of TTFT": "ttft_bias"})},
    )


OF_LOOPS = {"TPOT": "tpot", "bias": "tpot_bias", "covered": "coverage", "TTFT": "ttft"}

SERVER_FIGURES: Mapping[str, tuple[str, Show, Callable[[float, float], str]]] = {
    "prompts": ("tokens of prompts per second", plain, lambda low, high: f"{plain(low)} to {plain(high)}"),
    "answers": ("tokens of answers per second", plain, lambda low, high: f"{plain(low)} to {plain(high)}"),
    "speedup": (
        "gain of drafts",
        multiple,
        lambda low, high: f"{multiple(low)} to {multiple(high)}",
    ),
    "found": ("share of prompts in a cache", percent, lambda low, high: f"{percent(low)} to {percent(min(1.0, high))}"),
}
"""Figure of a server → its title, and how a value and bounds are shown."""


def published_servers_text(
    compared: Sequence[ComparedServer], not_served: Sequence[Refused[PublishedServer]]
) -> Renderable:
    """The content of `predict validate servers` for a terminal."""
    parts: list[Renderable] = []
    for figure, (title, show, among) in SERVER_FIGURES.items():
        rows = [one for one in compared if one.row.figure == figure]
        names: Columns[ComparedServer] = {
            "row": lambda one: one.row.row_id,
            "server": lambda one: f"{one.row.model} on {one.row.hardware}",
            "of": lambda one: counted(one.row.gpus, "GPU"),
        }
        if rows:
            parts += [table(title, rows, names, beside(itself, show, among)), ""]
    parts += [f"{one.row.row_id}: {escape(one.row.explained)}" for one in compared if one.row.explained]
    whole = scores(compared)
    return stacked(
        *parts,
        *refused("not expressible", [(one.row.row_id, one.why) for one in not_served]),
        "",
        f"{counted(whole.rows, 'row')}: mean error {share(whole.mean)}, {share(whole.coverage)} inside their interval",
    )
