"""Servers side by side, as text, JSON and a long table: a row for each combination of a sweep, or a column for each config."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from predict.interval import Interval
from predict.plan_search.compare import differing, setting_text
from predict.plan_search.servers import (
    ServerSweep,
    carried,
    carried_cost,
    carried_ratio,
    money,
    per_gpu,
    settings_of_server,
)
from predict.reports.money import amount_text
from predict.reports.serving.answer import answer_json, binding_text, load_line, objectives_text
from predict.reports.serving.step import coefficients_line, notes_on_answers
from predict.reports.sweep import rows_text
from predict.reports.text import escape, figures_table, stacked
from predict.serialise import each_picked, picked, versioned
from predict.serving.questions import Answer
from sampling.number_text import duration, durations, plain, signed_percent, significant
from sampling.units import SECOND_US

if TYPE_CHECKING:
    from rich.console import RenderableType


FIGURES = ("GPUs", "at once", "E2E", "90 %", "TTFT p90", "TPOT", "capacity")
COLUMNS = """
model commit device n_cards tp dp precision kv_precision engine seq_prompt seq_response rate_rps requests_at_once e2e_s e2e_low_s e2e_high_s
ttft_s ttft_low_s ttft_high_s tpot_s tpot_low_s tpot_high_s overloaded capacity_rps capacity_low_rps capacity_high_rps slo_rps slo_low_rps
slo_high_rps slo_binding cost_per_million_output reason
"""
"""Columns of the long table: times in seconds, rates in requests per second of all replicas, the cost at the rate that is carried."""


def servers_text(found: ServerSweep, title: str, ordered_by: str) -> RenderableType:
    """A row per combination, and why others cannot run."""
    answers = [row.prediction for row in found.rows if row.prediction]
    first = answers[0]
    kept, cost = first.kept, carried_cost(first)
    titles = ["engine" if each.path == "engine.name" else each.path.rpartition(".")[2] for each in found.varied]
    if len(set(titles)) < len(titles):
        titles = [each.path for each in found.varied]
    names = [
        *FIGURES,
        *(["keeps", "90 %", "limit"] if kept else ["90 %"]),
        "per GPU",
        *(["per M out"] if cost else []),
    ]
    loads = dict.fromkeys(load_line(one.outcomes[0].load) for one in answers)
    notes = [*(f"load: {load}" for load in loads if len(loads) == 1), ordered_by]
    if kept:
        notes.append(f"keeps: the highest rate with {objectives_text(kept.objectives)}; limit: what fails above it")
    notes.append(f"per GPU: requests per second at {_where(first)}")
    notes += ["per M out: money per million output tokens there, prompts included"] if cost else []
    notes.append(coefficients_line(first.server.stepper))
    return stacked(
        *notes_on_answers(answers), rows_text(found, title, titles, names, _figures), "", *map(escape, notes)
    )


def _where(found: Answer) -> str:
    return "the highest rate that keeps the objectives" if found.kept else "capacity"


def _figures(found: Answer) -> list[str]:
    one = found.outcomes[0]
    mean, low, high = (each.e2e.mean_us for each in (one.latency, one.low, one.high))
    times = [duration(mean), durations(low, high), duration(one.latency.ttft.percentiles_us[90])]
    if one.grows:
        times = ["queue grows", "", ""]
    cells = [str(found.server.run.server.placement.gpus), f"{found.server.at_once:,}", *times]
    capacity, bounds = _rate_cells(found.capacity)
    cells += [duration(one.latency.tpot.mean_us), capacity]
    if not found.kept:
        cells.append(bounds)
    else:
        cells += [*_rate_cells(found.kept.rate), ", ".join(one.title for one in found.kept.binding) or "queue"]
    cells.append(significant(per_gpu(found)))
    if cost := carried_cost(found):
        cells.append(amount_text(cost.output.median, cost.currency))
    return cells


def _rate_cells(rate: Interval | None) -> list[str]:
    assert rate is not None
    return [significant(rate.median), f"{significant(rate.low)} to {significant(rate.high)}"]


def servers_json(found: ServerSweep, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The long table's rows, in their order, and the keys that were varied."""
    used = next(row.prediction for row in found.rows if row.prediction).server.stepper.coefficients
    return versioned(
        "serving-sweep",
        {
            "config": found.name,
            "step": picked(used, "model source"),
            "varied": {each.path: each.values for each in found.varied},
            "rows": rows,
        },
    )


def server_columns(found: ServerSweep) -> list[str]:
    """The names of the long table's columns, the varied keys last."""
    return [*COLUMNS.split(), *(each.path for each in found.varied)]


def server_table(found: ServerSweep, *, commit: str) -> list[dict[str, Any]]:
    """The rows, each with every column; None where there is no figure."""
    empty = dict.fromkeys(server_columns(found))
    return [
        {
            **empty,
            **(_cells(row.prediction) | {"commit": commit} if row.prediction else {}),
            **row.values,
            "reason": row.reason,
        }
        for row in found.rows
    ]


def _cells(found: Answer) -> dict[str, Any]:
    run, one, capacity = found.server.run, found.outcomes[0], found.capacity
    placed, traffic = run.server.placement, one.served.traffic
    cost = carried_cost(found)
    cells: dict[str, Any] = {
        "model": run.server.model.name,
        "device": run.server.cluster.gpu.name,
        "n_cards": placed.gpus,
        **{name: getattr(placed, name) for name in ("tp", "dp", "precision", "kv_precision")},
        "engine": run.engine_name,
        "seq_prompt": float(traffic.prompt.mean()),
        "seq_response": float(traffic.output.mean()),
        "rate_rps": one.load.rate,
        "requests_at_once": found.server.at_once,
        "overloaded": one.grows,
        **_rate_columns("capacity", capacity),
        **_rate_columns("slo", found.kept.rate if found.kept else None),
        "slo_binding": binding_text(found.kept) if found.kept else None,
        "cost_per_million_output": cost.output.median if cost else None,
    }
    for name in ("e2e", "ttft", "tpot"):
        for end, latency in (("", one.latency), ("_low", one.low), ("_high", one.high)):
            cells[f"{name}{end}_s"] = getattr(latency, name).mean_us / SECOND_US
    return cells


def _rate_columns(name: str, rate: Interval | None) -> dict[str, float]:
    if rate is None:
        return {}
    return {f"{name}_rps": rate.median, f"{name}_low_rps": rate.low, f"{name}_high_rps": rate.high}


def servers_compare_text(answers: Sequence[Answer]) -> RenderableType:
    """The settings that differ, and a column for each config with the change from the first."""
    first = answers[0]
    runs = [one.server.run for one in answers]
    lines = []
    for run in runs[1:]:
        changes = differing(settings_of_server(runs[0]), settings_of_server(run))
        told = ", ".join(
            f"{path} {setting_text(one)} → {setting_text(other)}" for path, (one, other) in changes.items()
        )
        lines.append(escape(f"{runs[0].name} → {run.name}: {told or 'the same settings'}"))
    table = figures_table("", ("",), [escape(run.name) for run in runs])
    for name, value, write in _rows(first):
        values = [value(one) for one in answers]
        cells = [write(values[0])]
        for one in values[1:]:
            change = f" ({signed_percent(one / values[0] - 1, decimals=0)})" if values[0] and one != values[0] else ""
            cells.append(write(one) + change)
        table.add_row(name, *cells)
    intervals = f"90 % intervals of capacity: {', '.join(_rate_cells(one.capacity)[1] for one in answers)} requests/s"
    grows = [
        f"{escape(run.name)}: OVERLOADED, its times depend on how long the load lasts"
        for run, one in zip(runs, answers, strict=True)
        if one.outcomes[0].grows
    ]
    ratios = [escape(_ratio_line(first, other)) for other in answers[1:]]
    of_steps = escape(coefficients_line(first.server.stepper))
    return stacked(*notes_on_answers(answers), *lines, table, "", intervals, *ratios, *grows, of_steps)


def _ratio_line(first: Answer, other: Answer) -> str:
    """The ratio of what two servers carry, and whether it tells them apart."""
    found = carried_ratio(first, other)
    names = [each.server.run.name for each in (first, other)]
    told = f"{names[1]} carries {significant(found.median)} times what {names[0]} does (90 %: {significant(found.low)} to {significant(found.high)})"
    return f"{told}, so they may carry the same" if found.low <= 1 <= found.high else told


def _rows(first: Answer) -> Iterator[tuple[str, Any, Any]]:
    """Name, figure and form of each row."""
    yield "GPUs", lambda found: found.server.run.server.placement.gpus, str
    yield "requests at once", lambda found: found.server.at_once, "{:,}".format
    for figure in ("e2e", "ttft", "tpot"):
        of = attrgetter(f"latency.{figure}")
        yield f"{figure.upper()}, mean", lambda found, of=of: of(found.outcomes[0]).mean_us, duration
        yield f"{figure.upper()}, p90", lambda found, of=of: of(found.outcomes[0]).percentiles_us[90], duration
    yield "capacity, requests/s", lambda found: found.capacity.median, plain
    if first.kept:
        up_to = f"{objectives_text(first.kept.objectives)} up to, requests/s"
        yield up_to, lambda found: carried(found).median, plain
    yield "the same per GPU", per_gpu, plain
    if cost := carried_cost(first):
        name = f"cost per million output tokens at {_where(first)}"
        yield name, money, lambda amount: amount_text(amount, cost.currency)


def servers_compare_json(answers: Sequence[Answer]) -> dict[str, Any]:
    """The content of `predict serving --find-capacity --json` for each, in their order, and what each but the first carries over the first."""
    first, *others = answers
    servers = [answer_json(one) for one in answers]
    ratios = each_picked((carried_ratio(first, other) for other in others), "median low high")
    return versioned("serving-compare", {"servers": servers, "carried_ratios": ratios})
