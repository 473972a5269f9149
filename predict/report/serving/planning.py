"""The rate at which a server keeps its objectives, and the cost of its tokens, as lines and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from math import isinf
from typing import Any

from predict.interval import Interval
from predict.report.money import amount_text, money_text
from predict.serving.planning.cost import TokenCost
from predict.serving.planning.highest_rate import ObjectivesRate
from predict.serving.planning.loaded_server import LoadedServer
from predict.serving.planning.objectives import Objective
from sampling.files.faults import counted
from sampling.number_text import duration, percent, plain


def rate_text(rate: Interval) -> str:
    """`27.3 requests/s (90 %: 25.4 to 29.5)`."""
    bounds = f"{plain(rate.low)} to {plain(rate.high)}"
    return f"{plain(rate.median)} requests/s (90 %: {bounds})"


def objectives_text(objectives: Sequence[Objective]) -> str:
    """`TTFT p90 ≤ 1 s and TPOT p90 ≤ 50 ms`."""
    return " and ".join(_bound(one) for one in objectives)


def _bound(one: Objective) -> str:
    return f"{one.title} ≤ {duration(one.limit_us)}"


def binding_text(found: ObjectivesRate) -> str:
    """The obstacle to a higher rate, in words."""
    if not found.binding:
        return "the queue grows"
    return f"{objectives_text(found.binding)} {'fails' if len(found.binding) == 1 else 'fail'}"


def objectives_lines(server: LoadedServer, found: ObjectivesRate) -> list[str]:
    """The rate, what binds it, goodput, and the servers that the config's own rate takes."""
    per_gpu = found.rate.median / gpus_of(server)
    lines = [
        f"objectives  {objectives_text(found.objectives)}",
        f"            hold up to {rate_text(found.rate)}, {plain(per_gpu)} per GPU; above it {binding_text(found)}",
        f"            goodput there {plain(found.goodput_per_s)} requests/s: {percent(found.met_share)} of the requests keep every limit by "
        "themselves",
    ]
    rate = server.run.load.rate
    if rate:
        servers, at_least = found.servers_for(rate)
        slower = ""
        if at_least != servers:
            slower = f"; {at_least} at the lower bound" if at_least else "; at the lower bound no number of them does"
        gpus = counted(servers * gpus_of(server), "GPU")
        lines.append(f"            {plain(rate)} requests/s take {counted(servers, 'such server')}, {gpus}{slower}")
    return lines


def cost_lines(cost: TokenCost, name: str = "cost") -> list[str]:
    """The cost per million tokens."""
    return [
        f"{name:11} {money_text(cost.output, cost.currency)} per million output tokens, prompts included, at "
        f"{amount_text(cost.gpu_hour, cost.currency)} per GPU and hour",
        f"            divided by time in steps: {money_text(cost.input_alone, cost.currency)} per million input tokens, "
        f"{money_text(cost.output_alone, cost.currency)} per million output tokens",
    ]


def gpus_of(server: LoadedServer) -> int:
    return server.run.server.placement.gpus


def rate_json(rate: Interval) -> dict[str, float]:
    return {"median": rate.median, "low": rate.low, "high": rate.high}


def objectives_json(server: LoadedServer, found: ObjectivesRate) -> dict[str, Any]:
    """Rates in requests per second of all replicas."""
    rate = server.run.load.rate
    servers, at_least = found.servers_for(rate) if rate else (None, None)
    return {
        "objectives": {one.name: one.limit_us for one in found.objectives},
        "rate_rps": rate_json(found.rate),
        "binding": [one.name for one in found.binding] or ["queue"],
        "goodput_rps": found.goodput_per_s,
        "met_share": found.met_share,
        "gpus_per_server": gpus_of(server),
        "servers_for_load": servers,
        "servers_for_load_at_low": at_least,
    }


def cost_json(cost: TokenCost) -> dict[str, Any]:
    """Money per million tokens; null for a bound that is infinite."""
    spans = {name: asdict(getattr(cost, name)) for name in ("output", "input_alone", "output_alone")}
    return {
        "currency": cost.currency,
        "gpu_hour": cost.gpu_hour,
        **{name: _finite(span) for name, span in spans.items()},
    }


def _finite(span: dict[str, float]) -> dict[str, float | None]:
    return {name: None if isinf(value) else value for name, value in span.items()}
