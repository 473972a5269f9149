"""A server under loads, as text and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from predict.report.provenance_text import noted
from predict.report.serving.rests_on import notes_on_rows, sources_line
from predict.report.serving.step import server_line
from predict.report.tables import figures_table
from predict.report.units import duration, plain
from predict.serving.step_model import KERNELS

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from predict.serving.outcome import LoadedServer, Outcome, Rate
    from predict.serving.scheduler.latency import Latency
    from predict.serving.scheduler.traffic import Load

VERSION = 1
GIB = 2**30
TITLES = {"e2e": "E2E", "ttft": "TTFT", "tpot": "TPOT"}


def outcome_text(
    server: LoadedServer, outcomes: Sequence[Outcome], capacity: Rate | None, slow: float | None
) -> RenderableType:
    """One load in full, or a line for each of several; then the capacity where it was sought."""
    from rich.console import Group

    run, room, stepper = server.run, server.room, server.stepper
    size, batch = server.engine.block_size, outcomes[0].mean_batch
    sequences = room.sequences(run.load.prompt + run.load.output, size)
    lines: list[RenderableType] = [
        *noted(notes_on_rows(stepper, batch)),
        f"{escape(run.name)}  {escape(server_line(run))}",
        f"cache  {room.blocks:,} blocks of {size} tokens per GPU: {sequences:,} requests at once; weights {room.weights / GIB:.1f} GiB "
        f"of {room.memory / GIB:.1f}",
        "",
    ]
    lines += [_one(outcomes[0])] if len(outcomes) == 1 else [_several(outcomes)]
    if capacity:
        lines += [
            "",
            f"capacity  {_rate(capacity.median_per_s)}   (90 %: {plain(capacity.low_per_s)} to {_rate(capacity.high_per_s)})",
        ]
        lines += [f"mean TTFT passes three times that of a low rate at {_rate(slow or 0.0)}"]
        if run.traffic:
            lines += ["both for requests of the file's mean lengths, each with a prompt of its own"]
    lines += ["", escape(f"step by {stepper.coefficients.model}; coefficients: {stepper.coefficients.source}")]
    if stepper.coefficients.model == KERNELS.name:
        lines.append(sources_line(stepper, batch))
    return Group(*lines)


def load_line(load: Load) -> str:
    """A load in one line."""
    how = f"{load.concurrency} in flight" if load.concurrency else f"{plain(load.rate)} requests/s ({load.arrivals})"
    again = f", {load.distinct_prompts} prompts again and again" if load.distinct_prompts else ""
    return f"{how}, {load.prompt:,} tokens in, {load.output:,} out{again}"


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
    told: list[RenderableType] = [
        f"load   {load_line(outcome.load)}",
        "",
        table,
        "",
        f"throughput  {plain(latency.output_tokens_per_s)} output tokens/s, {plain(latency.requests_per_s)} requests/s per replica",
        f"steps       {served.steps:,}, {served.mean_requests:.1f} requests in each on average, {served.preemptions:,} preemptions",
        f"cache       {outcome.kv_share:.1%} in use on average, {served.most_blocks / outcome.room.blocks:.1%} at most",
        f"queue       {latency.mean_waiting:.1f} requests wait on average",
    ]
    if outcome.grows:
        where = " per replica" if outcome.replicas > 1 else ""
        told.append(
            f"OVERLOADED: the queue grows by {latency.queue_growth_per_s:.2f} requests per second{where}; E2E and TTFT are those of "
            f"{plain(outcome.load.duration_s)} s of load, and would be longer after more"
        )
    elif outcome.may_grow:
        told.append("NEAR SATURATION: with steps at the upper bound of their interval the queue grows")
    return Group(*told)


def _several(outcomes: Sequence[Outcome]) -> Table:
    table = figures_table(
        load_line(outcomes[0].load).partition(", ")[2],
        ("requests/s",),
        ("E2E", "90 % interval", "E2E p90", "TTFT", "TTFT p90", "TPOT", "tokens/s", "cache", "queue"),
    )
    for one in outcomes:
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
            "grows" if one.grows else f"{found.mean_waiting:.1f}{' (may grow)' if one.may_grow else ''}",
        )
    return table


def _rate(rate: float) -> str:
    return f"{plain(rate)} requests/s"


def outcome_json(
    server: LoadedServer, outcomes: Sequence[Outcome], capacity: Rate | None, slow: float | None
) -> dict[str, Any]:
    """The stable content of `predict serving --json`."""
    room = server.room
    found: dict[str, Any] = {
        "version": VERSION,
        "config": server.run.name,
        "model": server.stepper.coefficients.model,
        "source": server.stepper.coefficients.source,
        "notes": notes_on_rows(server.stepper, outcomes[0].mean_batch),
        "cache": {"blocks": room.blocks, "block_bytes": room.block, "weight_bytes": room.weights},
        "loads": [_load_json(one) for one in outcomes],
    }
    if capacity:
        found["capacity_rps"] = {
            "median": capacity.median_per_s,
            "low": capacity.low_per_s,
            "high": capacity.high_per_s,
        }
        found["rate_of_slow_first_tokens_rps"] = slow
    return found


def _load_json(one: Outcome) -> dict[str, Any]:
    latency, served = one.latency, one.served
    return {
        "rate_rps": one.load.rate,
        "concurrency": one.load.concurrency,
        "prompt": one.load.prompt,
        "output": one.load.output,
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


def _spread_json(name: str, one: Outcome) -> dict[str, float]:
    def spread(latency: Latency) -> Any:
        return getattr(latency, name)

    return {
        "mean": spread(one.latency).mean_us,
        "low": spread(one.low).mean_us,
        "high": spread(one.high).mean_us,
        **{f"p{percent}": time for percent, time in spread(one.latency).percentiles_us.items()},
    }
