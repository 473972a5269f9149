"""A server under loads, the rate at which it keeps its objectives, and the cost of its tokens, as text and JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from predict.interval import Interval
from predict.reports.money import amount_text, money_text
from predict.reports.printed import Renderable, Table
from predict.reports.serving_step import CAPACITY_BELOW, coefficients_line, notes_on_step, server_line, sources_text
from predict.reports.text import escape, fact, head, noted, stacked, table
from predict.serialise import as_json, picked, versioned
from predict.serving.batch import StepBatch
from predict.serving.loaded_server import LoadedServer
from predict.serving.questions import ObjectivesRate, TokenCost, binding_text, objectives_text
from predict.serving.step_model import KERNELS
from predict.serving.stepper import Stepper
from sampling.files.faults import counted
from sampling.number_text import duration, durations, percent, plain, significant, size, whole_percent
from sampling.units import SECOND_US

if TYPE_CHECKING:
    from predict.serving.latency import Spread
    from predict.serving.loaded_server import LoadOutcome
    from predict.serving.questions import ServerAnswer
    from predict.serving.traffic import Load


def rate_text(rate: Interval) -> str:
    """`27.3 requests/s (90 %: 25.4 to 29.5)`."""
    bounds = f"{plain(rate.low)} to {plain(rate.high)}"
    return f"{plain(rate.median)} requests/s (90 %: {bounds})"


def objectives_facts(server: LoadedServer, found: ObjectivesRate) -> Iterator[str]:
    """The rate, what binds it, goodput, and the servers that the config's own rate takes."""
    gpus, rate = gpus_of(server), server.run.load.rate
    per_gpu = plain(found.rate.median / gpus)
    yield fact("objectives", objectives_text(found.objectives))
    yield fact("", f"hold up to {rate_text(found.rate)}, {per_gpu} per GPU; above it {binding_text(found)}")
    met = f"{percent(found.met_share)} of the requests keep every limit by themselves"
    yield fact("", f"goodput there {plain(found.goodput_per_s)} requests/s: {met}")
    servers = found.servers_for(rate)
    if servers.least and servers.with_spare:
        slower = ""
        if servers.at_low != servers.least:
            slower = (
                f"; {servers.at_low} at the lower bound"
                if servers.at_low
                else "; at the lower bound no number of them does"
            )
        taken = f"{counted(servers.least, 'such server')}, {counted(servers.least * gpus, 'GPU')}"
        spare = f"; {servers.with_spare} of them, {counted(servers.with_spare * gpus, 'GPU')}, even where one fails"
        yield fact("", f"{plain(rate)} requests/s take {taken}{slower}{spare}")


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
    yield fact("", f"divided by {cost.divided_by}: {shares}")


def gpus_of(server: LoadedServer) -> int:
    return server.run.gpus


COST = "currency gpu_hour output input_alone output_alone"
"""The JSON of a cost: money per million tokens; null for a bound that is infinite."""

FOR_LOAD = "servers_for_load=least servers_for_load_at_low=at_low servers_for_load_with_spare=with_spare"
"""The JSON of the numbers of servers for a load."""


def objectives_json(server: LoadedServer, found: ObjectivesRate) -> dict[str, Any]:
    """Rates in requests per second of all replicas."""
    return {
        "objectives": {one.name: one.limit_us for one in found.objectives},
        "rate_rps": as_json(found.rate),
        "binding": [one.name for one in found.binding] or ["queue"],
        **picked(found, "goodput_rps=goodput_per_s met_share"),
        "gpus_per_server": gpus_of(server),
        **picked(found.servers_for(server.run.load.rate), FOR_LOAD),
    }


BROUGHT = {
    "prefill": "from the pool that computed them",
    "host": "from host memory",
    "disk": "from disk",
    "remote": "over the network from the memory that all share",
}
TITLES = {"e2e": "E2E", "ttft": "TTFT", "tpot": "TPOT", "itl": "ITL"}
OF_ONE_TOKEN = {name: TITLES[name] for name in ("e2e", "ttft")}
"""Those that answers of one token have."""


def answer_text(answer: ServerAnswer) -> Renderable:
    """One load in full, or a line for each of several; then the capacity, the objectives and the cost where they were asked for."""
    server, (first, *others) = answer.server, answer.outcomes
    run, room, stepper, batch = server.run, server.room, server.stepper, first.mean_batch
    most = run.server.engine.max_num_seqs
    of_replica = " per replica" if run.server.placement.dp > 1 or not run.fleet.is_alone else ""
    loads = (
        [_several(answer)]
        if others
        else [*_one(server, first), *(line for cost in answer.costs for line in cost_facts(cost))]
    )
    return stacked(
        *noted(notes_on_step(stepper, batch)),
        head(run.name, server_line(run)),
        "",
        fact(
            "room",
            f"{room.blocks:,} blocks of {counted(server.engine.block_size, 'token')} per GPU, room for {server.held:,} requests{of_replica} "
            f"(the engine runs {most:,} at once); weights {size(room.weights)} of {size(room.memory)}",
        ),
        *_drafts(stepper, batch),
        *loads,
        *_capacity(answer),
        *(["", *objectives_facts(server, answer.kept), *cost_facts(answer.kept_cost)] if answer.kept else []),
        *_rests_on(answer),
    )


def _drafts(stepper: Stepper, batch: StepBatch) -> Iterator[str]:
    """The drafts of a server, and the gain that they bring."""
    speculation = stepper.server.speculation
    if not speculation.drafts:
        return
    gains = stepper.paying(mean_context(batch))
    yield fact(
        "drafts",
        f"{counted(speculation.drafts, 'draft token')} per request and step ({speculation.kind}); a step adds "
        f"{significant(speculation.tokens_per_step)} tokens to an answer on average"
        + (", as is usual of the kind" if speculation.is_usual else ""),
    )
    (first, one), (last, most) = gains.ends
    until = f"from {gains.loses_from} requests on they cost more than they bring" * (gains.loses_from is not None)
    yield fact(
        "",
        f"tokens come {significant(one)}× as fast as without them at {counted(first, 'request')} at once, {significant(most)}× at {last:,}"
        + (f"; {until}" if until else ""),
    )


def _drafts_json(stepper: Stepper, batch: StepBatch) -> dict[str, Any]:
    speculation = stepper.server.speculation
    gains = stepper.paying(mean_context(batch))
    return {
        **picked(speculation, "kind tokens=drafts tokens_per_step usual_acceptance=is_usual"),
        "accepted_shares": speculation.accepted_shares.tolist(),
        "speedups": [
            {"requests": count, **asdict(each)} for count, each in zip(gains.requests, gains.speedups, strict=True)
        ],
        "loses_from": gains.loses_from,
    }


def mean_context(batch: StepBatch) -> int:
    """Tokens in the cache of a decode, on average."""
    return sum(batch.decodes) // max(1, len(batch.decodes))


def _capacity(answer: ServerAnswer) -> Iterator[str]:
    capacity, run = answer.capacity, answer.server.run
    if capacity:
        yield ""
        yield fact("capacity", f"{rate_text(capacity)}: above it the queue grows")
        yield fact("", CAPACITY_BELOW)
        slow = plain(answer.slow_first_tokens_per_s or 0.0)
        yield fact(
            "slow TTFT",
            f"from {slow} requests/s on three times that of a low rate, in the mean: requests wait before the queue grows",
        )
        yield from cost_facts(answer.capacity_cost)
        if run.traffic:
            yield fact("", "both for the file's requests over and over, their lengths and prompts together")


def _rests_on(answer: ServerAnswer) -> Iterator[str]:
    """The sources of steps and rates, and a remark on what is not counted."""
    server, stepper = answer.server, answer.server.stepper
    yield ""
    if server.run.load.concurrency and (answer.capacity or answer.kept):
        yield "rates are those of the same requests arriving at random, as an open loop"
    yield escape(coefficients_line(stepper))
    if not stepper.coefficients.knows_client:
        yield "the client's time is unknown to these coefficients and not counted: E2E and TTFT are those within the engine"
    if stepper.coefficients.model == KERNELS.name:
        yield sources_text(stepper, answer.outcomes[0].mean_batch)


def load_line(load: Load) -> str:
    """A load in one line."""
    how = f"{load.concurrency:,} in flight" if load.concurrency else f"{plain(load.rate)} requests/s ({load.arrivals})"
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
    again = f", {counted(load.distinct_prompts, 'prompt')} again and again" if load.distinct_prompts else ""
    talks = load.prefix
    if talks.turns > 1:
        again += f", {counted(talks.turns, 'turn')} of a conversation {duration(talks.pause_s * SECOND_US)} apart"
    if talks.groups:
        again += f", after one of {talks.groups:,} beginnings of {talks.shared:,} tokens"
    new = " new" if talks.turns > 1 or talks.groups else ""
    return f"{load.prompt:,}{new} tokens in{_drawn(load, 'prompt')}, {load.output:,} out{_drawn(load, 'output')}{again}"


def _drawn(load: Load, of: str) -> str:
    """The distribution that lengths are drawn from, if they are."""
    lengths, longest = getattr(load, f"{of}_lengths"), getattr(load, f"{of}_max")
    cut = f", {longest:,} at most" if longest else ""
    return f" on average ({lengths}{cut})" if lengths else ""


def file_text(load: Load) -> str:
    """The file of a load, and how many requests it has."""
    return f"{counted(load.requests, 'request')} of {escape(Path(load.file).name)}"


def _one(server: LoadedServer, outcome: LoadOutcome) -> Iterator[Renderable]:
    latency, served, each = outcome.latency, outcome.served, outcome.per_replica
    shown = TITLES if served.traffic.output.max() > 1 else OF_ONE_TOKEN
    spreads = [(title, getattr(latency, name), outcome.mean_us(name)) for name, title in shown.items()]
    several = outcome.replicas > 1
    per_replica = " per replica" if several else ""
    of_one = f" ({plain(each.output_tokens_per_s)} and {plain(each.requests_per_s)} per replica)" if several else ""
    counted_over = "while requests wait" if outcome.grows else "from the first completion to the last"
    yield fact("load", load_line(outcome.load))
    yield ""
    yield table(
        "",
        spreads,
        {"": lambda row: row[0]},
        {"mean": lambda row: duration(row[1].mean_us), "90 % interval": lambda row: durations(row[2].low, row[2].high)}
        | {f"p{place}": partial(_percentile, place) for place in latency.e2e.percentiles_us},
    )
    yield ""
    yield fact(
        "throughput",
        f"{plain(outcome.output_tokens_per_s)} output tokens/s, {plain(outcome.requests_per_s)} requests/s{of_one}, {counted_over}",
    )
    yield fact(
        "steps",
        f"{served.steps:,}, {significant(served.mean_requests)} requests in each on average, {counted(served.preemptions, 'preemption')}",
    )
    yield fact("cache", f"{percent(outcome.kv_share)} in use on average, {percent(outcome.most_kv_share)} at most")
    if served.found_tokens:
        yield fact("prompts", f"{percent(outcome.hit_share)} of their tokens were in the cache")
    yield from _fleet(server, outcome)
    yield fact("queue", f"{significant(each.mean_waiting)} requests wait on average{per_replica}")
    if outcome.grows:
        yield (
            f"OVERLOADED: the queue grows by {significant(each.queue_growth_per_s)} requests per second{per_replica}; E2E and TTFT are those of "
            f"{plain(outcome.load.duration_s)} s of load, and would be longer after more"
        )
    elif outcome.may_grow:
        yield "NEAR SATURATION: with steps at the upper bound of their interval the queue grows"
    if outcome.is_short and not outcome.grows:
        yield (
            f"SHORT LOAD: a request takes {duration(latency.e2e.mean_us)} of the {plain(outcome.load.duration_s)} s in which they arrive, so that the "
            "server is never as busy as under this rate for long; raise load.duration_s"
        )
    if not latency.is_steady and not outcome.grows:
        yield (
            "NOT STEADY: the first conversations hardly end before the last ones begin, so that the server is never as busy as under this rate "
            "for long; raise load.duration_s"
        )


def _fleet(server: LoadedServer, outcome: LoadOutcome) -> Iterator[str]:
    """The places from which keys and values were brought, and engines beyond one."""
    fleet = outcome.served.fleet
    if fleet is None:
        return
    for name, share in outcome.brought_shares.items():
        if share:
            yield fact("", f"keys and values of {percent(share)} of the prompts' tokens came {BROUGHT[name]}")
    if server.run.fleet.is_alone:
        return
    names = ("the pool of prompts", "that of answers") if len(fleet.busy) > 1 else ("replicas",)
    busy = ", ".join(
        f"{name} {whole_percent(share)} of the time" for name, share in zip(names, fleet.busy, strict=True)
    )
    up = f"at most {counted(fleet.most_up, 'replica')} at once, {significant(fleet.up_s / 3600)} replica-hours in all"
    yield fact("fleet", f"in steps: {busy}; {up}")
    if carried := server.carried_by_pools(outcome):
        rate = outcome.requests_per_s
        shares = [f"{percent(rate / most)} of the {plain(most)} requests/s" for most in carried]
        yield fact("", "prompts at {}, answers at {} that their pools carry in full steps".format(*shares))
    if fleet.started or fleet.lost:
        yield fact(
            "",
            f"{counted(fleet.started, 'replica')} started, {counted(fleet.lost, 'request')} sent again after failures",
        )


def _percentile(place: int, row: tuple[str, Spread, Interval]) -> str:
    return duration(row[1].percentiles_us[place])


def _several(answer: ServerAnswer) -> Table:
    load, costs = answer.outcomes[0].load, answer.costs
    return table(
        ", ".join([*([file_text(load)] if load.file else []), requests_text(load)]),
        zip_longest(answer.outcomes, costs, answer.met_shares, answer.goodputs_per_s),
        {},
        {
            "requests/s": lambda row: plain(row[0].load.rate),
            "E2E": lambda row: duration(row[0].latency.e2e.mean_us),
            "90 % interval": lambda row: durations(row[0].mean_us("e2e").low, row[0].mean_us("e2e").high),
            "E2E p90": lambda row: duration(row[0].latency.e2e.percentiles_us[90]),
            "TTFT": lambda row: duration(row[0].latency.ttft.mean_us),
            "TTFT p90": lambda row: duration(row[0].latency.ttft.percentiles_us[90]),
            "TPOT": lambda row: duration(row[0].latency.tpot.mean_us),
            "tokens/s": lambda row: plain(row[0].output_tokens_per_s),
            "cache": lambda row: whole_percent(row[0].kv_share),
            "queue": lambda row: _queue(row[0]),
        }
        | (
            {"meet all": lambda row: whole_percent(row[2]), "goodput/s": lambda row: plain(row[3])}
            if answer.met_shares
            else {}
        )
        | ({"per M output": lambda row: amount_text(row[1].output.median, row[1].currency)} if costs else {}),
    )


def _queue(one: LoadOutcome) -> str:
    return (
        "grows" if one.grows else f"{significant(one.per_replica.mean_waiting)}{' (may grow)' if one.may_grow else ''}"
    )


def answer_json(answer: ServerAnswer) -> dict[str, Any]:
    """The content of `predict serving --json`."""
    server, kept = answer.server, answer.kept
    loads = [_load_json(server, one) for one in answer.outcomes]
    for load, cost in zip(loads, answer.costs, strict=False):
        load["cost"] = picked(cost, COST)
    for load, share, goodput in zip(loads, answer.met_shares, answer.goodputs_per_s, strict=False):
        load |= {"met_share": share, "goodput_rps": goodput}
    found: dict[str, Any] = {
        "config": server.run.name,
        **picked(server.stepper.coefficients, "model source"),
        "notes": notes_on_step(server.stepper, answer.outcomes[0].mean_batch),
        "cache": picked(server.room, "blocks block_bytes=block weight_bytes=weights"),
        "loads": loads,
    }
    if server.run.server.speculation.drafts:
        found["speculation"] = _drafts_json(server.stepper, answer.outcomes[0].mean_batch)
    if answer.capacity:
        found |= picked(answer, "capacity_rps=capacity rate_of_slow_first_tokens_rps=slow_first_tokens_per_s")
    if answer.capacity_cost:
        found["capacity_cost"] = picked(answer.capacity_cost, COST)
    if kept:
        found["slo"] = objectives_json(server, kept)
        if answer.kept_cost:
            found["slo"]["cost"] = picked(answer.kept_cost, COST)
    return versioned("serving", found)


def _fleet_json(server: LoadedServer, one: LoadOutcome) -> dict[str, Any]:
    """Shares of the prompts' tokens that were found and brought, and the work of replicas; nothing where requests share none."""
    served = one.served
    found: dict[str, Any] = {"prompt_hit_share": one.hit_share} if served.found_tokens or served.fleet else {}
    if served.fleet:
        found["brought_shares"] = one.brought_shares
        found["fleet"] = picked(served.fleet, "busy up_s most_up started lost")
    if carried := server.carried_by_pools(one):
        found["fleet"]["carried_rps"] = carried
    if served.traffic.talk is not None:
        found["is_steady"] = one.latency.is_steady
    return found


def _load_json(server: LoadedServer, one: LoadOutcome) -> dict[str, Any]:
    load = one.load
    return (
        picked(load, "rate_rps=rate concurrency")
        | {"file": picked(load, "name=file requests span_s=duration_s") if load.file else None}
        | picked(load, "prompt output prompt_lengths output_lengths")
        | {f"{name}_us": _spread_json(name, one) for name in TITLES}
        | picked(one, "requests_per_s output_tokens_per_s replicas")
        | {"per_replica": picked(one.per_replica, "requests_per_s output_tokens_per_s queue_growth_per_s")}
        | picked(
            one,
            "overloaded=grows may_be_overloaded=may_grow short_load=is_short cache_share=kv_share preemptions=served.preemptions steps=served.steps",
        )
        | _fleet_json(server, one)
    )


def _spread_json(name: str, one: LoadOutcome) -> dict[str, float]:
    spread, mean = getattr(one.latency, name), one.mean_us(name)
    percentiles = {f"p{percent}": time for percent, time in spread.percentiles_us.items()}
    return {"mean": mean.median, "low": mean.low, "high": mean.high} | percentiles
