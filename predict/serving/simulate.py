"""A server under traffic: the loop over its steps, and what each request waited for."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil, exp, log
from typing import Any

import numpy as np

from predict.interval import Interval, independent_causes
from predict.model import spec
from predict.serving import batch, block_cache, engine_loop, engine_state, token_gaps
from predict.serving.kv_cache import BlockPool
from predict.serving.requests import in_closed_loop
from predict.serving.server import EngineSettings
from predict.serving.speculation import RING, accepted_tokens
from predict.serving.step_table import StepTable
from predict.serving.token_gaps import BINS, TokenGaps
from predict.serving.traffic import Chains, Load, Prefix, Traffic, traffic_of
from regressors.features.arrays import Floats, Ints
from sampling.errors import InfeasibleError
from sampling.files.machine_code import compiled, form_of, pays_to_compile
from sampling.units import SECOND_US

STRIDE = 1021
"""Decodes by which the draws of accepted drafts of one request are ahead of those of the request before it."""
AT_ONCE = 8
"""Tokens that a turn of the loop makes, at least: steps that repeat are played at once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FleetUse:
    """The work of a fleet under a load, beyond what its requests saw."""

    up_s: float
    """Seconds for which replicas were up, all together."""
    busy: tuple[float, ...]
    """Share of that time in steps, by pool: prompts first where they are apart."""
    brought_tokens: dict[str, float]
    """Tokens whose keys and values came from each place other than the cache of its engine."""
    lost: int
    """Requests that failures interrupted."""
    started: int
    """Replicas that were started."""
    most_up: int


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Served:
    """The times of each request, in µs from the start, and sums over the engine's steps."""

    traffic: Traffic
    start_us: Floats
    """First scheduled."""
    first_us: Floats
    """First token."""
    last_us: Floats
    """Last token."""
    trace: Floats
    """The first steps, a row each: start, time, chunks, chunk tokens, decodes, running, blocks in use."""
    steps: int
    busy_us: float
    """Time in steps."""
    mean_requests: float
    """Requests of a step, weighed by its time."""
    mean_blocks: float
    """Blocks in use, weighed by time."""
    most_blocks: int
    preemptions: int
    chunk_tokens: float
    """Prompt tokens that were computed."""
    found_tokens: float
    """Prompt tokens that requests found in the cache when they were first scheduled."""
    gaps: TokenGaps
    """Times between the tokens of answers."""
    fleet: FleetUse | None = None
    """Of many engines, or one with tiers: what lies between them."""


def serve(engine: EngineSettings, pool: BlockPool, table: StepTable, traffic: Traffic, *, traced: int = 0) -> Served:
    """Serve the traffic with a cache of these blocks, and keep a trace of the first `traced` steps.

    InfeasibleError for a request that the cache cannot hold by itself.
    """
    require_room(engine, pool, traffic)
    machine_code = pays_to_compile(engine_loop.play, (int(traffic.output.sum()) + len(traffic)) // AT_ONCE)
    as_form = form_of(machine_code)
    requests, rules, state = (
        _requests(engine, pool, traffic, as_form),
        rules_of(engine, pool.blocks, table, traffic),
        _state(engine, pool.blocks, traffic, as_form),
    )
    record = engine_state.Record(
        start_us=as_form(np.full(len(traffic), -1.0)),
        first_us=as_form(np.full(len(traffic), -1.0)),
        last_us=as_form(np.full(len(traffic), -1.0)),
        found=as_form(np.zeros(len(traffic), dtype=np.int64)),
        trace=as_form(np.zeros((traced, engine_state.TRACE_COLUMNS))),
        totals=as_form(np.zeros(engine_state.PULLED + 1)),
        gaps=as_form(np.zeros(BINS)),
    )
    run = _compiled_play() if machine_code else engine_loop.play
    if not run(requests, rules, _no_levels(as_form), table_of(table, as_form), state, record):
        raise RuntimeError("the engine's loop came to a halt before all requests were served")
    return _served(traffic, requests, state, record)


def _compiled_play() -> Any:
    return compiled(engine_loop.play, spec, batch, block_cache, engine_state, token_gaps, helpers=engine_loop.HELPERS)


def _requests(engine: EngineSettings, pool: BlockPool, traffic: Traffic, as_form: Any) -> engine_state.Requests:
    arrival = traffic.arrival_us.copy()
    if traffic.in_flight:
        arrival[traffic.in_flight :] = np.inf
    beside = pool.beside(traffic.prompt + traffic.output, engine.block_size)
    columns = (arrival, traffic.prompt, traffic.output, *segments_of(traffic.all_chains, engine.block_size))
    return engine_state.Requests(*map(as_form, (*columns, np.zeros_like(beside), beside)))


def segments_of(chains: Chains, block: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Chains in whole blocks: places of the requests' first segments, segments, blocks before each, and blocks of each."""
    start, end = (tokens // block for tokens in (chains.begins, chains.ends))
    return chains.first, chains.segment, start, end - start


def rules_of(
    engine: EngineSettings, blocks: int, table: StepTable, traffic: Traffic, **between: Any
) -> engine_state.Rules:
    """The limits of an engine; `between` are those that only one of several engines has."""
    alone: dict[str, Any] = {
        "prompts_alone": int(engine.prompts_alone),
        "own_nodes": traffic.all_chains.count,
        "hands_on": 0,
        "distance": 0,
        "overlap": 0.0,
        "coupled": 0,
    }
    since, until = traffic.talks_overlap_us or (-1.0, engine_state.NEVER)
    return engine_state.Rules(
        watched_since=since,
        watched_until=until,
        most_running=engine.max_num_seqs,
        most_tokens=engine.max_num_batched_tokens,
        blocks=blocks,
        block=engine.block_size,
        in_flight=traffic.in_flight,
        chunked=int(engine.chunked_prefill),
        caching=int(engine.prefix_caching),
        asynchronous=int(engine.asynchronous),
        whole_prompt=int(table.whole_prompt),
        recv_interval=engine.recv_interval,
        gather_steps=engine.batch_wait_steps,
        gather_tokens=engine.batch_wait_share * engine.max_num_batched_tokens,
        reserving=int(engine.never_preempts),
        seen=table.seen,
        drafts=table.speculation.drafts,
        accepted=accepted_tokens(table.speculation),
        **(alone | between),
    )


def _no_levels(as_form: Any) -> engine_state.Levels:
    """The one level of a pool that there is not."""
    times, nodes = np.zeros(1), np.zeros(1, dtype=np.int64)
    return engine_state.Levels(*map(as_form, (times, times, nodes, nodes, nodes, nodes)))


def table_of(table: StepTable, as_form: Any) -> engine_state.Table:
    sums_us = np.zeros(engine_state.SUMS)
    sums_us[engine_state.CHUNKS] = table.request_us
    sums_us[engine_state.TOKENS] = table.prefill_token_us
    sums_us[engine_state.PAIRS] = table.pair_us
    sums_us[engine_state.READ] = table.context_us
    sums_us[engine_state.WINDOW_PAIRS] = table.window_pair_us
    sums_us[engine_state.WINDOW_READ] = table.window_context_us
    sums_us[engine_state.DECODES] = table.request_us
    return engine_state.Table(
        as_form(table.decode_us),
        as_form(table.mixed_us),
        as_form(table.attention_us),
        as_form(table.window_attention_us),
        as_form(table.contexts),
        as_form(sums_us),
        float(table.floor_us),
        table.decode_tokens,
    )


def _state(engine: EngineSettings, blocks: int, traffic: Traffic, as_form: Any) -> engine_state.State:
    count, segments = len(traffic), traffic.all_chains.count
    numbers = np.zeros(engine_state.COUNTERS, dtype=np.int64)
    numbers[engine_state.FREE] = numbers[engine_state.UNUSED] = blocks
    numbers[engine_state.ENDS] = segments + count
    numbers[engine_state.LENT] = -1
    numbers[engine_state.NEXT_CLOSED] = traffic.in_flight or count
    nodes = (segments, segments + count + 1)
    state = state_of(engine, count, nodes, numbers, (), as_form)
    return state._replace(following=as_form(np.append(np.arange(1, count), -1)))


def state_of(
    engine: EngineSettings,
    count: int,
    nodes: tuple[int, int],
    numbers: Ints,
    each: tuple[int, ...],
    as_form: Any,
    *,
    levels: int = 1,
) -> engine_state.State:
    """The state of engines before `count` requests: of one, or of as many as `each` says. `nodes` are those of segments, and all: with the
    requests' own, and those that end an order."""
    most = engine.max_num_seqs

    def zeros(*size: int) -> Any:
        return as_form(np.zeros(size, dtype=np.int64))

    order = np.arange(nodes[1])
    return engine_state.State(
        computed=zeros(count),
        made=zeros(count),
        held=zeros(count),
        base=zeros(count),
        room=zeros(count),
        drafted=as_form(np.arange(count, dtype=np.int64) * STRIDE % RING),
        joined=zeros(count),
        builds=zeros(count),
        following=as_form(np.full(count, -1)),
        running=zeros(*each, most),
        chunk=zeros(*each, most),
        waiting=zeros(*each, most + 1),
        pulling=zeros(*each, most),
        ended=zeros(*each, most),
        ready=as_form(np.full(count, engine_state.NEVER)),
        source=as_form(np.full(count, -1)),
        began=as_form(np.zeros(count)),
        wanted=zeros(*each, levels),
        links=as_form(np.zeros((*each, levels))),
        sending=as_form(np.zeros(each or 1)),
        holders=zeros(nodes[0]),
        kept=zeros(nodes[1]),
        earlier=as_form(order),
        later=as_form(order.copy()),
        clock=as_form(np.zeros((*each, 4))),
        numbers=as_form(numbers),
        sums=as_form(np.zeros((*each, engine_state.SUMS))),
    )


def _served(
    traffic: Traffic, requests: engine_state.Requests, state: engine_state.State, record: engine_state.Record
) -> Served:
    totals = record.totals
    busy_us = totals[engine_state.BUSY_US]
    return Served(
        traffic=replace(traffic, arrival_us=np.asarray(requests.arrival)),
        start_us=np.asarray(record.start_us),
        first_us=np.asarray(record.first_us),
        last_us=np.asarray(record.last_us),
        trace=np.asarray(record.trace)[: int(totals[engine_state.STEPS])],
        steps=int(totals[engine_state.STEPS]),
        busy_us=busy_us,
        mean_requests=totals[engine_state.RUNNING_US] / busy_us,
        mean_blocks=totals[engine_state.BLOCKS_US] / busy_us,
        most_blocks=int(totals[engine_state.MOST_BLOCKS]),
        preemptions=int(state.numbers[engine_state.PREEMPTED]),
        chunk_tokens=totals[engine_state.CHUNK_TOKENS],
        found_tokens=float(np.sum(record.found)),
        gaps=TokenGaps(counts=np.asarray(record.gaps)),
    )


def require_room(engine: EngineSettings, pool: BlockPool, traffic: Traffic) -> None:
    """InfeasibleError for a request that the engine can never run by itself."""
    needed = pool.needed(traffic.prompt + traffic.output, engine.block_size)
    most = int(needed.argmax())
    if needed[most] > pool.blocks:
        raise InfeasibleError(
            f"key-value cache: request {most} has {traffic.prompt[most]} + {traffic.output[most]} tokens, {needed[most]} blocks of "
            f"{engine.block_size}, where the cache has {pool.blocks}; spread the model over more GPUs (placement.tp), or shorten the requests"
        )
    # a request that is preempted computes its prompt and the tokens that it has made in one step
    at_once = traffic.prompt if engine.never_preempts else traffic.prompt + traffic.output
    longest = int(at_once.argmax())
    if not engine.chunked_prefill and at_once[longest] > engine.max_num_batched_tokens:
        answer = "" if engine.never_preempts else f" + {traffic.output[longest]}, computed anew after a preemption"
        raise InfeasibleError(
            f"engine.max_num_batched_tokens: {engine.max_num_batched_tokens} is less than the tokens of request {longest} "
            f"({traffic.prompt[longest]}{answer}), and chunked_prefill is off; raise it, or switch that on"
        )


ROUNDS = 6
"""Times that every place of the engine is filled, at least; the first and the last do not count."""
LEAST_PLACES = 32
"""Places by which rounds are counted, at least: ends of fewer requests are too few for a rate."""


def saturating_requests(places: int, recorded: Traffic | None = None) -> int:
    """Requests by which `saturated_per_s` finds a rate."""
    return (_rounds(places, recorded) + 3) * places


def _rounds(places: int, recorded: Traffic | None) -> int:
    return max(ROUNDS, ceil(len(recorded or ()) / places) + 2)


def saturated_per_s(
    serve_all: Callable[[Traffic], Served], places: int, load: Load, recorded: Traffic | None = None
) -> float:
    """Requests per second that are done while the queue is never empty, of a load or of recorded requests, all of which
    count: a higher rate makes the queue grow without end. `places` are the requests that run at once."""
    full, rounds, count = 2 * places, _rounds(places, recorded), saturating_requests(places, recorded)
    if recorded is None:
        traffic = traffic_of(replace(load, rate=0.0, concurrency=full, requests=count, start="staggered"))
    else:
        traffic = in_closed_loop(recorded, full, count)
    served = serve_all(traffic)
    ends = np.sort(served.last_us)
    # the loop starts with answers that are cut short; whole rounds after these, by the mean of neighbouring ends
    first, last = full + places, full + (rounds - 1) * places
    half = max(1, places // 2)
    early, late = ends[first - half : first + half].mean(), ends[last - half : last + half].mean()
    return float((last - first) / (late - early) * SECOND_US)


OVERLOAD = 0.4
"""Log half-width at 90 % by which a full engine may be slower than its steps: in both measured overloads the step of the same full batch
grew over the first minutes and then stayed, from 27 to 30 ms and from 29 to 40, and nothing here models that."""


def capacity_interval(low: float, median: float, high: float) -> Interval:
    """The interval of a capacity whose steps are at the bounds of theirs."""
    below = independent_causes(log(median / low), OVERLOAD)
    return Interval(median=median, low=median * exp(-below), high=high)


def places_of(engine: EngineSettings, pool: BlockPool, load: Load) -> int:
    """Requests that may run at once: those that the engine takes, or whose prompts the cache holds where they have nothing in common."""
    if load.distinct_prompts or load.shared_tokens or load.file or load.prefix != Prefix():
        return engine.max_num_seqs
    shortest = max(1, round(load.prompt * (1 - load.spread)))
    held = pool.blocks // int(pool.needed(np.array(shortest), engine.block_size))
    return max(LEAST_PLACES, min(engine.max_num_seqs, held))


def capacity_per_s(engine: EngineSettings, pool: BlockPool, table: StepTable, load: Load) -> float:
    """Requests per second that one engine carries (see `saturated_per_s`)."""
    return saturated_per_s(lambda traffic: serve(engine, pool, table, traffic), places_of(engine, pool, load), load)
