"""The rate at which a server keeps its objectives, and the cost of its tokens, as lines and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from predict.interval import Interval
from predict.reports.money import amount_text, money_text
from predict.reports.text import escape, fact
from predict.serialise import as_json, picked
from predict.serving.loaded_server import LoadedServer
from predict.serving.questions import Objective, ObjectivesRate, TokenCost
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


def objectives_facts(server: LoadedServer, found: ObjectivesRate) -> Iterator[str]:
    """The rate, what binds it, goodput, and the servers that the config's own rate takes."""
    gpus, rate = gpus_of(server), server.run.load.rate
    per_gpu = plain(found.rate.median / gpus)
    yield fact("objectives", objectives_text(found.objectives))
    yield fact("", f"hold up to {rate_text(found.rate)}, {per_gpu} per GPU; above it {binding_text(found)}")
    met = f"{percent(found.met_share)} of the requests keep every limit by themselves"
    yield fact("", f"goodput there {plain(found.goodput_per_s)} requests/s: {met}")
    if rate:
        servers, at_least = found.servers_for(rate)
        slower = ""
        if at_least != servers:
            slower = f"; {at_least} at the lower bound" if at_least else "; at the lower bound no number of them does"
        taken = f"{counted(servers, 'such server')}, {counted(servers * gpus, 'GPU')}"
        yield fact("", f"{plain(rate)} requests/s take {taken}{slower}")


def cost_facts(cost: TokenCost | None) -> Iterator[str]:
    """The cost per million tokens at the rate of the lines before; nothing for none."""
    if cost is None:
        return
    output, inputs, alone = (
        escape(money_text(of, cost.currency)) for of in (cost.output, cost.input_alone, cost.output_alone)
    )
    hour = escape(amount_text(cost.gpu_hour, cost.currency))
    yield fact("cost", f"{output} per million output tokens, prompts included, at {hour} per GPU and hour")
    shares = f"{inputs} per million input tokens, {alone} per million output tokens"
    yield fact("", f"divided by time in steps: {shares}")


def gpus_of(server: LoadedServer) -> int:
    return server.run.server.placement.gpus


COST = "currency gpu_hour output input_alone output_alone"
"""The JSON of a cost: money per million tokens; null for a bound that is infinite."""


def objectives_json(server: LoadedServer, found: ObjectivesRate) -> dict[str, Any]:
    """Rates in requests per second of all replicas."""
    rate = server.run.load.rate
    servers, at_least = found.servers_for(rate) if rate else (None, None)
    return {
        "objectives": {one.name: one.limit_us for one in found.objectives},
        "rate_rps": as_json(found.rate),
        "binding": [one.name for one in found.binding] or ["queue"],
        **picked(found, "goodput_rps=goodput_per_s met_share"),
        "gpus_per_server": gpus_of(server),
        "servers_for_load": servers,
        "servers_for_load_at_low": at_least,
    }
