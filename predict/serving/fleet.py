"""Many engines of one server under one load: what chooses among them, where prompts are computed, and tiers behind their caches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np

from predict.model import spec
from predict.serving import batch, block_cache, engine_loop, engine_state, fleet_loop, token_gaps
from predict.serving.kv_cache import BlockPool, kept_bytes
from predict.serving.server import EngineSettings, Server
from predict.serving.simulate import AT_ONCE, FleetUse, Served, require_room, rules_of, segments_of, state_of, table_of
from predict.serving.step_table import StepTable
from predict.serving.traffic import SEED, Traffic
from regressors.features.arrays import Ints
from sampling.files.machine_code import compiled, form_of, pays_to_compile
from sampling.files.schema import Key
from sampling.hardware.cluster import Link
from sampling.units import GIB, SECOND_US

Router = Literal["round_robin", "least_load", "power_of_two", "prefix"]
ROUTERS: tuple[Router, ...] = ("round_robin", "least_load", "power_of_two", "prefix")
"""In the order of fleet_loop's numbers."""
CHECK_S = 5.0
"""Seconds between two looks of the autoscaler at the load."""
DRAWS = 4096
LEVELS = ("prefill", "host", "disk", "remote")
"""Where keys and values come from other than from an engine's cache."""
GigaBytesPerS = Annotated[float, Key(minimum=0.001, maximum=1e6)]


@dataclass(frozen=True, kw_only=True, slots=True)
class FleetSettings:
    """Replicas of the server, and the pool that computes prompts where it is apart."""

    replicas: Annotated[int, Key(minimum=1, maximum=4096)] = 1
    """Copies of the server: its placement again and again. With `prefill_replicas` those that make answers."""
    router: Router = "least_load"
    """round_robin, in turn; least_load, to the replica with the fewest requests; power_of_two, to the better of two drawn ones; prefix, to
    the one with the least work, tokens that its cache knows left out."""
    gpus: Annotated[int, Key(minimum=0, maximum=65536)] = 0
    """GPUs of all replicas, in place of their numbers: those that fit, with `prefill_tp` as many of each pool as keep pace; 0 for none."""
    prefill_replicas: Annotated[int, Key(minimum=0, maximum=4096)] = 0
    """Copies that compute prompts alone and send keys and values on; 0 for none: each replica does both."""
    prefill_tp: Annotated[int, Key(minimum=0)] = 0
    """Tensor-parallel GPUs of each of those; 0 for `placement.tp`, and with `gpus` for no such pool."""
    layerwise: bool = True
    """Keys and values are sent layer by layer while the next ones are computed."""
    most_replicas: Annotated[int, Key(minimum=0, maximum=4096)] = 0
    """Replicas up to which an autoscaler starts more; 0 for none."""
    target_requests: Annotated[float, Key(minimum=0)] = 0.0
    """Requests per replica, waiting ones included, above which it does."""
    start_s: Annotated[float, Key(minimum=0, maximum=1e5)] = 60.0
    """Seconds that a replica takes to start, after a failure too."""
    failures_s: tuple[float, ...] = ()
    """Seconds at which a replica fails, each time the next one; its requests are sent again."""

    @property
    def is_alone(self) -> bool:
        """Whether there is one engine that does everything."""
        return self.replicas == 1 and not self.prefill_replicas and not self.most_replicas and not self.failures_s


@dataclass(frozen=True, kw_only=True, slots=True)
class TierSettings:
    """Memory behind the cache that keeps what was evicted: copied beside the steps, brought back before a request runs."""

    host_gib: Annotated[float, Key(minimum=0)] = 0.0
    """GiB of host memory of each replica; 0 for none."""
    host_gb_per_s: GigaBytesPerS = 50.0
    """GB/s from there to all GPUs of the replica."""
    disk_gib: Annotated[float, Key(minimum=0)] = 0.0
    """GiB on disks of each replica; 0 for none."""
    disk_gb_per_s: GigaBytesPerS = 6.0
    """GB/s from there to all GPUs of the replica."""
    remote_gib: Annotated[float, Key(minimum=0)] = 0.0
    """GiB that all replicas share over the network; 0 for none."""
    remote_gb_per_s: GigaBytesPerS = 20.0
    """GB/s from there to one replica."""

    @property
    def used(self) -> tuple[str, ...]:
        """The tiers that have room."""
        return tuple(name for name in LEVELS[1:] if getattr(self, f"{name}_gib") > 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pool:
    """Equal engines."""

    engines: int
    blocks: BlockPool


@dataclass(frozen=True, kw_only=True, slots=True)
class Ways:
    """µs per token, and before the first, to bring keys and values from each level; blocks of 0 and up that a tier holds."""

    names: tuple[str, ...]
    token_us: tuple[float, ...]
    start_us: tuple[float, ...]
    capacity: tuple[int, ...]
    overlap: float
    """Share of a transfer between pools that may hide behind the computing of prompts."""


def ways_of(server: Server, prefill: Server | None, tiers: TierSettings, layerwise: bool, link: Link) -> Ways:
    """The ways to a server's cache. Each GPU of a pool sends, or gets, its own share of the keys and values over its own `link`."""
    own = kept_bytes(server).token
    largest = max(own, kept_bytes(prefill).token) if prefill else own
    whole = own * server.tp
    block = whole * server.engine.block_size
    layers = server.model.layers
    return Ways(
        names=(LEVELS[0], *tiers.used),
        token_us=(
            largest / link.bytes_per_us(),
            *(whole / (1e3 * float(getattr(tiers, f"{name}_gb_per_s"))) for name in tiers.used),
        ),
        start_us=(link.latency_us, *(0.0 for _ in tiers.used)),
        capacity=(0, *(int(getattr(tiers, f"{name}_gib") * GIB / block) for name in tiers.used)),
        overlap=1 - 1 / layers if layerwise else 0.0,
    )


def serve_fleet(
    engine: EngineSettings,
    pools: Sequence[Pool],
    tables: Sequence[StepTable],
    traffic: Traffic,
    settings: FleetSettings,
    ways: Ways,
) -> Served:
    """Serve the traffic with the engines of one pool, or of one for prompts and one for answers. InfeasibleError for a request that no
    cache holds."""
    for pool in pools:
        require_room(engine, pool.blocks, traffic)
    count, apart = len(traffic), len(pools) == 2
    engines = sum(pool.engines for pool in pools)
    coupled = int(apart or traffic.in_flight > 0 or traffic.after is not None)
    # steps that repeat are played at once only where no other engine has to learn of them
    turns = (int(traffic.output.sum()) + count * engines) // (1 if coupled else AT_ONCE)
    machine_code = pays_to_compile(fleet_loop.play_fleet, turns)
    as_form = form_of(machine_code)
    whole = _twice(traffic) if apart else traffic
    nodes = _Nodes.of(engines, traffic.all_chains.count, len(whole), ways.names)
    rules = [
        rules_of(
            engine,
            pool.blocks.blocks,
            table,
            traffic,
            prompts_alone=int(engine.prompts_alone and not apart),
            own_nodes=nodes.own,
            hands_on=int(apart and place == 0),
            distance=count if apart else 0,
            overlap=ways.overlap,
            coupled=coupled,
        )
        for place, (pool, table) in enumerate(zip(pools, tables, strict=True))
    ]
    pool_of = np.repeat(np.arange(len(pools)), [pool.engines for pool in pools])
    requests, levels = _requests(engine, pools, traffic, whole, as_form), nodes.levels(ways, as_form)
    numbers = _numbers(nodes, np.array([pool.blocks.blocks for pool in pools])[pool_of], len(whole))
    shape = (nodes.own, nodes.all)
    state = state_of(engine, len(whole), shape, numbers, (engines,), as_form, levels=len(ways.names))
    for row in state.clock:
        row[2] = engine_state.NEVER
    record = _empty_record(len(whole), engines, len(ways.names), as_form)
    fleet, policy = _fleet(settings, pool_of, traffic, len(whole), as_form), _policy(settings, traffic)
    play = _compiled_play() if machine_code else fleet_loop.play_fleet
    end_us = play(
        fleet_loop.Simulation(
            requests=requests,
            rules=(rules[0], rules[-1]),
            levels=levels,
            tables=(table_of(tables[0], as_form), table_of(tables[-1], as_form)),
            state=state,
            record=record,
            fleet=fleet,
            policy=policy,
        )
    )
    last = np.asarray(record.last_us)[-count:]
    if (last < 0).any():
        raise RuntimeError(f"the engines came to a halt before {int((last < 0).sum())} of {count} requests were served")
    return _served(traffic, state, record, fleet, pools, ways, float(max(end_us, last.max())))


def _numbers(nodes: _Nodes, blocks: Ints, requests: int) -> Ints:
    """The counters of idle engines, [engines, COUNTERS], each with its blocks free and its part of the nodes."""
    numbers = np.zeros((len(blocks), engine_state.COUNTERS), dtype=np.int64)
    numbers[:, engine_state.FREE] = numbers[:, engine_state.UNUSED] = blocks
    numbers[:, engine_state.FIRST_NODE] = nodes.first[:, 0]
    numbers[:, engine_state.ENDS] = nodes.ends[:, 0]
    numbers[:, engine_state.NEXT] = numbers[:, engine_state.LENT] = -1
    numbers[:, engine_state.NEXT_CLOSED] = requests
    return numbers


def _empty_record(requests: int, engines: int, levels: int, as_form: Any) -> engine_state.Record:
    """The record of requests of which none has begun."""
    start_us, first_us, last_us = (as_form(np.full(requests, -1.0)) for _ in range(3))
    return engine_state.Record(
        start_us=start_us,
        first_us=first_us,
        last_us=last_us,
        found=as_form(np.zeros(requests, dtype=np.int64)),
        trace=as_form(np.zeros((engines, 0, engine_state.TRACE_COLUMNS))),
        totals=as_form(np.zeros((engines, engine_state.PULLED + levels))),
        gaps=as_form(np.zeros(token_gaps.BINS)),
    )


def _compiled_play() -> Any:
    return compiled(
        fleet_loop.play_fleet,
        spec,
        batch,
        block_cache,
        engine_loop,
        engine_state,
        token_gaps,
        helpers=(*engine_loop.HELPERS, *fleet_loop.FLEET_HELPERS),
    )


def _twice(traffic: Traffic) -> Traffic:
    """The requests as the pool for prompts has them, of one token each, and then as the pool for answers has them."""
    chains, ones = traffic.all_chains, np.ones_like(traffic.output)
    first = np.concatenate((chains.first, chains.first[-1] + chains.first[1:]))
    again = replace(chains, first=first, segment=np.tile(chains.segment, 2))
    return replace(
        traffic,
        arrival_us=np.concatenate((traffic.arrival_us, np.full(len(traffic), np.inf))),
        prompt=np.tile(traffic.prompt, 2),
        output=np.concatenate((ones, traffic.output)),
        shared=np.tile(traffic.shared, 2),
        group=np.tile(traffic.group, 2),
        chains=again,
        in_flight=0,
    )


def _requests(
    engine: EngineSettings, pools: Sequence[Pool], traffic: Traffic, whole: Traffic, as_form: Any
) -> engine_state.Requests:
    arrival = whole.arrival_us.copy()
    if traffic.in_flight:
        arrival[traffic.in_flight :] = np.inf
    tokens = whole.prompt + whole.output
    of_pool = len(traffic) if len(pools) == 2 else len(whole)
    beside = np.concatenate(
        [
            pool.blocks.beside(tokens[place * of_pool : (place + 1) * of_pool], engine.block_size)
            for place, pool in enumerate(pools)
        ]
    )
    remote = np.where(np.arange(len(whole)) >= of_pool, whole.prompt, 0)
    columns = (arrival, whole.prompt, whole.output, *segments_of(whole.all_chains, engine.block_size), remote, beside)
    return engine_state.Requests(*map(as_form, columns))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Nodes:
    """The nodes of all caches and tiers: segments of each, then the requests' own of each level, then those that end an order."""

    first: Ints
    """The first segment's node, by engine and level."""
    ends: Ints
    """The node that ends the order, by engine and level."""
    own: int
    requests: int
    all: int

    @staticmethod
    def of(engines: int, segments: int, requests: int, names: Sequence[str]) -> _Nodes:
        caches = np.zeros((engines, len(names)), dtype=np.int64)
        count = 0
        for level, name in enumerate(names):
            caches[:, level] = count + (0 if name == "remote" else np.arange(engines))
            count += 1 if name == "remote" else engines
        own = count * segments
        ends = own + len(names) * requests
        return _Nodes(first=caches * segments, ends=ends + caches, own=own, requests=requests, all=ends + count)

    def levels(self, ways: Ways, as_form: Any) -> engine_state.Levels:
        engines, count = self.first.shape

        def each(values: Sequence[float]) -> Any:
            return np.tile(np.array(values), (engines, 1))

        own = each([self.own + level * self.requests for level in range(count)])
        columns = (each(ways.token_us), each(ways.start_us), self.first, own, self.ends, each(ways.capacity))
        return engine_state.Levels(*map(as_form, columns))


def _fleet(settings: FleetSettings, pool_of: Ints, traffic: Traffic, requests: int, as_form: Any) -> fleet_loop.Fleet:
    engines = len(pool_of)
    scales = settings.most_replicas > 0
    at_start = np.arange(engines) < settings.replicas if scales else np.ones(engines, dtype=bool)
    draws = np.random.default_rng(SEED).random(DRAWS)

    def zeros(size: int) -> Any:
        return as_form(np.zeros(size, dtype=np.int64))

    return fleet_loop.Fleet(
        pool=as_form(pool_of),
        status=as_form(np.where(at_start, fleet_loop.SERVING, fleet_loop.OFF)),
        ready=as_form(np.zeros(engines)),
        since=as_form(np.zeros(engines)),
        up_us=as_form(np.zeros(engines)),
        given=zeros(engines),
        seen=zeros(engines),
        engine=as_form(np.full(requests, -1)),
        first_arrival=as_form(np.full(requests, -1.0)),
        expected=zeros(requests),
        coming=zeros(requests),
        draws=as_form(draws),
        failures=as_form(np.array(sorted(settings.failures_s)) * SECOND_US),
        after=as_form(np.full(len(traffic), -1) if traffic.after is None else traffic.after),
        pause=as_form(np.zeros(len(traffic)) if traffic.pause_us is None else traffic.pause_us),
        numbers=zeros(fleet_loop.FLEET_NUMBERS),
    )


def _policy(settings: FleetSettings, traffic: Traffic) -> fleet_loop.Policy:
    external = len(traffic) if traffic.after is None else int(np.isfinite(traffic.arrival_us).sum())
    return fleet_loop.Policy(
        router=ROUTERS.index(settings.router),
        requests=len(traffic),
        external=external,
        in_flight=traffic.in_flight,
        at_least=settings.replicas,
        target=settings.target_requests if settings.most_replicas else 0.0,
        check_us=CHECK_S * SECOND_US,
        start_us=settings.start_s * SECOND_US,
    )


def _served(
    traffic: Traffic,
    state: engine_state.State,
    record: engine_state.Record,
    fleet: fleet_loop.Fleet,
    pools: Sequence[Pool],
    ways: Ways,
    end_us: float,
) -> Served:
    """The findings, requests in order of arrival."""
    count = len(traffic)
    arrival = np.asarray(fleet.first_arrival)[:count]
    order = np.argsort(arrival, kind="stable")
    start, first, last = (np.asarray(times) for times in (record.start_us, record.first_us, record.last_us))
    totals, numbers = np.asarray(record.totals), np.asarray(state.numbers)
    pool_of, status = np.asarray(fleet.pool), np.asarray(fleet.status)
    up_us = np.asarray(fleet.up_us) + np.where(status == fleet_loop.OFF, 0.0, end_us - np.asarray(fleet.since))
    busy_us = totals[:, engine_state.BUSY_US]
    answers = pool_of == len(pools) - 1
    steps_us = float(busy_us[answers].sum())
    brought = totals[:, engine_state.PULLED :].sum(axis=0)
    names = ("prompt", "output", "shared", "group", "talk")
    columns = {name: column[order] for name in names if (column := getattr(traffic, name)) is not None}
    return Served(
        traffic=replace(traffic, arrival_us=arrival[order], chains=None, after=None, pause_us=None, **columns),
        start_us=start[:count][order],
        first_us=first[-count:][order],
        last_us=last[-count:][order],
        trace=np.zeros((0, engine_state.TRACE_COLUMNS)),
        steps=int(totals[:, engine_state.STEPS].sum()),
        busy_us=steps_us,
        mean_requests=float(totals[answers, engine_state.RUNNING_US].sum()) / steps_us,
        mean_blocks=float(totals[answers, engine_state.BLOCKS_US].sum()) / steps_us,
        most_blocks=int(totals[answers, engine_state.MOST_BLOCKS].max()),
        preemptions=int(numbers[:, engine_state.PREEMPTED].sum()),
        chunk_tokens=float(totals[:, engine_state.CHUNK_TOKENS].sum()),
        found_tokens=float(np.sum(np.asarray(record.found)[:count])),
        gaps=token_gaps.TokenGaps(counts=np.asarray(record.gaps)),
        fleet=FleetUse(
            up_s=float(up_us.sum()) / SECOND_US,
            busy=tuple(
                float(busy_us[pool_of == place].sum() / max(up_us[pool_of == place].sum(), 1.0))
                for place in range(len(pools))
            ),
            brought_tokens=dict(zip(ways.names, map(float, brought), strict=True)),
            lost=int(fleet.numbers[fleet_loop.LOST]),
            started=int(fleet.numbers[fleet_loop.STARTED]),
            most_up=int(fleet.numbers[fleet_loop.MOST_UP]) or len(pool_of),
        ),
    )
