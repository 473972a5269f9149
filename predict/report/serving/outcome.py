"""A server under loads, as text and JSON."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from predict.report.money import amount_text
from predict.report.provenance import noted
from predict.report.serving.planning import (
    cost_json,
    cost_lines,
    objectives_json,
    objectives_lines,
    rate_json,
    rate_text,
)
from predict.report.serving.step import coefficients_line, notes_on_step, server_line, sources_line
from predict.report.text import figures_table
from predict.serving.step_model import KERNELS
from sampling.files.faults import counted
from sampling.number_text import duration, plain
from sampling.units import GIB, SECOND_US

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from predict.serving.planning.answer import Answer
    from predict.serving.planning.cost import TokenCost
    from predict.serving.planning.loaded_server import Outcome
    from predict.serving.scheduler.latency import Latency
    from predict.serving.scheduler.traffic import Load

VERSION = 3
"""Version of the JSON; since 2, `requests_per_s` counts completions from the first to the last, since 3 only those before an overloaded
server's queue is empty."""
TITLES = {"e2e": "E2E", "ttft": "TTFT", "tpot": "TPOT"}


def answer_text(answer: Answer) -> RenderableType:
    """One load in full, or a line for each of several; then the capacity, the objectives and the cost where they were asked for."""
    from rich.console import Group

    server, outcomes, capacity = answer.server, answer.outcomes, answer.capacity
    run, room, stepper = server.run, server.room, server.stepper
    size, most, batch = server.engine.block_size, server.engine.max_num_seqs, outcomes[0].mean_batch
    sequences = room.sequences(run.load.prompt + run.load.output, size)
    lines: list[RenderableType] = [
        *noted(notes_on_step(stepper, batch)),
        f"{escape(run.name)}  {escape(server_line(run))}",
        f"cache  {room.blocks:,} blocks of {size} tokens per GPU, room for {sequences:,} requests (the engine runs {most:,} at once); weights "
        f"{room.weights / GIB:.1f} GiB of {room.memory / GIB:.1f}",
        "",
    ]
    if len(outcomes) == 1:
        lines += [_one(outcomes[0]), *(escape(line) for cost in answer.costs for line in cost_lines(cost))]
    else:
        lines += [_several(answer)]
    if capacity:
        lines += ["", f"capacity    {rate_text(capacity)}: above it the queue grows"]
        lines += [
            f"            mean TTFT passes three times that of a low rate at {_rate(answer.slow_first_tokens_per_s or 0.0)}"
        ]
        lines += _there(answer.capacity_cost)
        if run.traffic:
            lines += ["            both for the file's requests over and over, their lengths and prompts together"]
    if answer.kept:
        lines += ["", *objectives_lines(server, answer.kept), *_there(answer.kept_cost)]
    if run.load.concurrency and (capacity or answer.kept):
        lines += ["", "rates are those of the same requests arriving at random, as an open loop"]
    lines += ["", escape(coefficients_line(stepper))]
    if not stepper.coefficients.knows_client:
        lines.append(
            "the client's time is unknown to these coefficients and not counted: E2E and TTFT are those within the engine"
        )
    if stepper.coefficients.model == KERNELS.name:
        lines.append(sources_line(stepper, batch))
    return Group(*lines)


def _there(cost: TokenCost | None) -> list[str]:
    """The cost at the rate of the lines before."""
    return [] if cost is None else [escape(f"            {line.lstrip()}") for line in cost_lines(cost, "cost there")]


def load_line(load: Load) -> str:
    """A load in one line."""
    how = f"{load.concurrency} in flight" if load.concurrency else f"{plain(load.rate)} requests/s ({load.arrivals})"
    if load.file:
        over = (
            f"{plain(load.rate)} requests/s over {duration(load.duration_s * SECOND_US)}"
            if load.rate
            else "all at once"
        )
        how = f"{file_text(load)}, {over}"
    return f"{how}, {requests_text(load)}"


def requests_text(load: Load) -> str:
    """The requests of a load, without their arrivals."""
    if load.file:
        return f"{load.prompt:,} tokens in and {load.output:,} out on average"
    again = f", {load.distinct_prompts} prompts again and again" if load.distinct_prompts else ""
    return f"{load.prompt:,} tokens in{_drawn(load, 'prompt')}, {load.output:,} out{_drawn(load, 'output')}{again}"


def _drawn(load: Load, of: str) -> str:
    """The distribution that lengths are drawn from, if they are."""
    lengths, longest = getattr(load, f"{of}_lengths"), getattr(load, f"{of}_max")
    cut = f", {longest:,} at most" if longest else ""
    return f" on average ({lengths}{cut})" if lengths else ""


def file_text(load: Load) -> str:
    """The file of a load, and how many requests it has."""
    return f"{counted(load.requests, 'request')} of {escape(Path(load.file).name)}"


def _one(outcome: Outcome) -> RenderableType:
    from rich.console import Group

    table = figures_table("", ("",), ("mean", "90 % interval", "p50", "p90", "p99"))
    for name, title in TITLES.items():
        spread, low, high = (getattr(one, name) for one in (outcome.latency, outcome.low, outcome.high))
        table.add_row(
            title,
            duration(spread.mean_us),
            f"{duration(low.mean_us)} to {duration(high.mean_us)}",
            *(duration(time) for time in spread.percentiles_us.values()),
        )
    latency, served = outcome.latency, outcome.served
    per_replica = " per replica" if outcome.replicas > 1 else ""
    told: list[RenderableType] = [
        f"load   {load_line(outcome.load)}",
        "",
        table,
        "",
        f"throughput  {plain(latency.output_tokens_per_s)} output tokens/s, {plain(latency.requests_per_s)} requests/s"
        f"{per_replica}, {'while requests wait' if outcome.grows else 'from the first completion to the last'}",
        f"steps       {served.steps:,}, {served.mean_requests:.1f} requests in each on average, {served.preemptions:,} preemptions",
        f"cache       {outcome.kv_share:.1%} in use on average, {served.most_blocks / outcome.room.blocks:.1%} at most",
        f"queue       {latency.mean_waiting:,.1f} requests wait on average",
    ]
    if outcome.grows:
        told.append(
            f"OVERLOADED: the queue grows by {latency.queue_growth_per_s:.2f} requests per second{per_replica}; E2E and TTFT are those of "
            f"{plain(outcome.load.duration_s)} s of load, and would be longer after more"
        )
    elif outcome.may_grow:
        told.append("NEAR SATURATION: with steps at the upper bound of their interval the queue grows")
    return Group(*told)


def _several(answer: Answer) -> Table:
    outcomes, costs, load = answer.outcomes, answer.costs, answer.outcomes[0].load
    figures = ("E2E", "90 % interval", "E2E p90", "TTFT", "TTFT p90", "TPOT", "tokens/s", "cache", "queue")
    table = figures_table(
        ", ".join([*([file_text(load)] if load.file else []), requests_text(load)]),
        ("requests/s",),
        (*figures, *(["per M output"] if costs else [])),
    )
    for place, one in enumerate(outcomes):
        found = one.latency
        table.add_row(
            plain(one.load.rate),
            duration(found.e2e.mean_us),
            f"{duration(one.low.e2e.mean_us)} to {duration(one.high.e2e.mean_us)}",
            duration(found.e2e.percentiles_us[90]),
            duration(found.ttft.mean_us),
            duration(found.ttft.percentiles_us[90]),
            duration(found.tpot.mean_us),
            plain(found.output_tokens_per_s),
            f"{one.kv_share:.0%}",
            "grows" if one.grows else f"{found.mean_waiting:,.1f}{' (may grow)' if one.may_grow else ''}",
            *([amount_text(costs[place].output.median, costs[place].currency)] if costs else []),
        )
    return table


def _rate(rate: float) -> str:
    return f"{plain(rate)} requests/s"


def answer_json(answer: Answer) -> dict[str, Any]:
    """The stable content of `predict serving --json`."""
    server, room = answer.server, answer.server.room
    loads = [_load_json(one) for one in answer.outcomes]
    for load, cost in zip(loads, answer.costs, strict=False):
        load["cost"] = cost_json(cost)
    found: dict[str, Any] = {
        "version": VERSION,
        "config": server.run.name,
        "model": server.stepper.coefficients.model,
        "source": server.stepper.coefficients.source,
        "notes": notes_on_step(server.stepper, answer.outcomes[0].mean_batch),
        "cache": {"blocks": room.blocks, "block_bytes": room.block, "weight_bytes": room.weights},
        "loads": loads,
    }
    if answer.capacity:
        found["capacity_rps"] = rate_json(answer.capacity)
        found["rate_of_slow_first_tokens_rps"] = answer.slow_first_tokens_per_s
    if answer.capacity_cost:
        found["capacity_cost"] = cost_json(answer.capacity_cost)
    if answer.kept:
        found["slo"] = objectives_json(server, answer.kept)
        if answer.kept_cost:
            found["slo"]["cost"] = cost_json(answer.kept_cost)
    return found


def _load_json(one: Outcome) -> dict[str, Any]:
    latency, served = one.latency, one.served
    return {
        "rate_rps": one.load.rate,
        "concurrency": one.load.concurrency,
        "file": _file_json(one.load) if one.load.file else None,
        "prompt": one.load.prompt,
        "output": one.load.output,
        "prompt_lengths": one.load.prompt_lengths,
        "output_lengths": one.load.output_lengths,
        **{f"{name}_us": _spread_json(name, one) for name in TITLES},
        "requests_per_s": latency.requests_per_s,
        "output_tokens_per_s": latency.output_tokens_per_s,
        "queue_growth_per_s": latency.queue_growth_per_s,
        "overloaded": one.grows,
        "may_be_overloaded": one.may_grow,
        "cache_share": one.kv_share,
        "preemptions": served.preemptions,
        "steps": served.steps,
    }


def _file_json(load: Load) -> dict[str, Any]:
    """The recorded requests, and the seconds in which they arrive at the load's rate."""
    return {"name": load.file, "requests": load.requests, "span_s": load.duration_s}


def _spread_json(name: str, one: Outcome) -> dict[str, float]:
    def spread(latency: Latency) -> Any:
        return getattr(latency, name)

    return {
        "mean": spread(one.latency).mean_us,
        "low": spread(one.low).mean_us,
        "high": spread(one.high).mean_us,
        **{f"p{percent}": time for percent, time in spread(one.latency).percentiles_us.items()},
    }
