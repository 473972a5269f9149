"""A server under a load: latencies with intervals, the use of its cache, and the load that it can carry."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf

import numpy as np

from predict.interval import Interval
from predict.serving.batch import Chunk, StepBatch, sums_of
from predict.serving.coefficients import Client
from predict.serving.config import ServingRun
from predict.serving.fleet import Pool, serve_fleet, ways_of
from predict.serving.kv_cache import BlockPool
from predict.serving.latency import WATCHED, Latency, RequestTimes, latency_of, times_of
from predict.serving.requests import at_rate_of, played_again
from predict.serving.server import EngineSettings
from predict.serving.simulate import Served, capacity_interval, places_of, saturated_per_s, saturating_requests, serve
from predict.serving.step_table import StepTable
from predict.serving.stepper import Stepper
from predict.serving.traffic import Load, Traffic, at_rate, every, traffic_of
from sampling.units import SECOND_US

GROWING = 0.03
"""Share of the arrivals by which a queue grows that is not chance: below saturation it is under 0.01 in a minute."""
LEAST_GROWN = 5.0
"""Requests by which a queue must have grown: in a load of few requests, a burst looks like a large share."""
SHORT = 0.25
"""Mean time of requests over the time in which they arrive, above which a load is short: at its beginning and at its end the server is not
as busy as between them."""
SEARCHED = 1000
"""Requests that a rate is judged by in a search, at least: a p99 rests on ten of them."""
CONVERSED_S, MOST_CONVERSED = 600.0, 20_000
"""Seconds of conversations that a rate is judged by in a search, at least, as far as they have no more requests: a burst after which the
caches find less, so that the queue grows from then on, comes after minutes."""


HALVINGS = 8
"""Halvings of a bracket, which leave 0.4 % of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bracket:
    """The highest rate that was found to hold, and the lowest that was not; equal where everything up to it holds."""

    holds: float
    fails: float


def bisected(holds: Callable[[float], bool], least: float, most: float) -> Bracket:
    """The edge between a rate that holds and one that does not; neither end is tried."""
    for _ in range(HALVINGS):
        middle = (least + most) / 2
        least, most = (middle, most) if holds(middle) else (least, middle)
    return Bracket(holds=least, fails=most)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplicaRates:
    """Rates of one replica, per second, and the requests that wait there on average."""

    requests_per_s: float
    output_tokens_per_s: float
    queue_growth_per_s: float
    mean_waiting: float


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadOutcome:
    """One stream of batches under its share of a load, and with steps at the bounds of their interval."""

    load: Load
    latency: Latency
    low: Latency
    high: Latency
    served: Served
    blocks: int
    """Blocks of the cache that the stream has."""
    streams: int
    """Streams of batches among which the load is divided: each replica of attention has one for each of its pipeline stages."""
    replicas: int
    """Replicas of attention, where one stream is simulated for all; 1 where every engine is."""

    @property
    def mean_batch(self) -> StepBatch:
        """A step with as many decodes as there are requests in a step on average, each halfway through its answer."""
        load = self.load
        return StepBatch(decodes=(load.mean_prompt + load.output // 2,) * max(1, round(self.served.mean_requests)))

    @property
    def kv_share(self) -> float:
        """Share of the cache's blocks in use, on average over the time of steps."""
        return self.served.mean_blocks / self.blocks

    @property
    def most_kv_share(self) -> float:
        """The largest share of them at any time."""
        return self.served.most_blocks / self.blocks

    @property
    def hit_share(self) -> float:
        """Share of the tokens of prompts that requests found in the cache of their engine when they were first scheduled."""
        return self.served.found_tokens / float(self.served.traffic.prompt.sum())

    @property
    def brought_shares(self) -> dict[str, float]:
        """Share of the tokens of prompts whose keys and values came from each place other than that cache."""
        fleet, tokens = self.served.fleet, float(self.served.traffic.prompt.sum())
        return {name: brought / tokens for name, brought in fleet.brought_tokens.items()} if fleet else {}

    def mean_us(self, figure: str) -> Interval:
        """The mean of `e2e`, `ttft`, `tpot` or `itl`. Slower steps may shorten it where a fleet then starts another replica, or an
        overloaded engine takes fewer requests at once, so that its bounds are the least and the most of the three."""
        means = [float(getattr(each, figure).mean_us) for each in (self.low, self.latency, self.high)]
        return Interval(median=means[1], low=min(means), high=max(means))

    @property
    def grows(self) -> bool:
        """Whether the queue takes up more than GROWING of the requests that arrive, and has grown by LEAST_GROWN."""
        return self._grows(self.latency)

    @property
    def may_grow(self) -> bool:
        """Whether it does with steps at the upper bound of their interval."""
        return self._grows(self.high)

    @property
    def is_short(self) -> bool:
        """Whether an open loop ends before the server is as busy as under its rate for long, by SHORT. Requests of a file are served as
        they are, and conversations begin before the load does."""
        load = self.load
        is_drawn = not load.concurrency and not load.file and self.served.traffic.talk is None
        return is_drawn and self.latency.e2e.mean_us > SHORT * load.duration_s * SECOND_US

    @property
    def requests_per_s(self) -> float:
        """Completions per second of all replicas."""
        return self._loaded_streams * self.latency.requests_per_s

    @property
    def output_tokens_per_s(self) -> float:
        """Those of all replicas."""
        return self._loaded_streams * self.latency.output_tokens_per_s

    @property
    def _loaded_streams(self) -> float:
        """Streams that have the load's requests if each has as many as the simulated one: that has the most of all, so that they
        are fewer than there are where a closed loop does not divide evenly."""
        in_flight = self.load.concurrency
        return in_flight / ceil(in_flight / self.streams) if in_flight else self.streams

    @property
    def per_replica(self) -> ReplicaRates:
        """The rates of one replica of attention, on average."""
        streams, latency = self._loaded_streams / self.replicas, self.latency
        return ReplicaRates(
            requests_per_s=streams * latency.requests_per_s,
            output_tokens_per_s=streams * latency.output_tokens_per_s,
            queue_growth_per_s=streams * latency.queue_growth_per_s,
            mean_waiting=streams * latency.mean_waiting,
        )

    @property
    def answered(self) -> Interval:
        """Requests per second that all replicas answer: as many as arrive where the queue does not grow, else those
        that end in a second."""
        rates = [self._answered_per_s(each) for each in (self.low, self.latency, self.high)]
        return Interval(median=rates[1], low=min(rates), high=max(rates))

    def _answered_per_s(self, latency: Latency) -> float:
        arrives = not self.load.concurrency and self.load.rate and not self._grows(latency)
        return self.load.rate if arrives else self._loaded_streams * latency.requests_per_s

    def _grows(self, latency: Latency) -> bool:
        return not self.load.concurrency and _outgrows(latency.queue_growth_per_s, self.load, self.streams)


def _outgrows(growth_per_s: float, load: Load, streams: int) -> bool:
    """Whether the queue of one of so many streams of a load takes up more than GROWING of its arrivals, and has grown by LEAST_GROWN."""
    return growth_per_s > GROWING * load.rate / streams and growth_per_s * load.duration_s * WATCHED >= LEAST_GROWN


BUSY = 0.85
"""Share of the time in which a pool for prompts may be busy: above it first tokens wait long, whatever the load."""
SIZES = 40
"""Batches that the best one is looked for among."""
Tables = tuple[StepTable, ...]
"""The steps of each pool of engines."""


def with_replicas(run: ServingRun, stepper: Stepper, tpot_us: float) -> ServingRun:
    """The run with the replicas that its GPUs hold; of two pools, those whose slower one does most requests by steps that are all full."""
    fleet, each = run.fleet, run.server.placement.gpus
    if not fleet.prefill_tp:
        return replace(run, fleet=replace(fleet, gpus=0, replicas=max(1, fleet.gpus // each)))
    apart = replace(run, fleet=replace(fleet, gpus=0, prefill_replicas=1))
    assert apart.prefill is not None
    of_prompts = apart.prefill.placement.gpus
    prompts = prompts_per_s(Stepper(apart.prefill, stepper.coefficients), run.load.mean_prompt)
    answers = answers_per_s(stepper, run.load.mean_prompt, run.load.output, tpot_us)
    most = max(1, (fleet.gpus - each) // of_prompts)
    paces = {}
    for count in range(1, most + 1):
        others = max(1, (fleet.gpus - count * of_prompts) // each)
        paces[count, others] = min(BUSY * count * prompts, others * answers)
    prefill, replicas = max(paces, key=lambda numbers: (paces[numbers], -sum(numbers)))
    return replace(run, fleet=replace(fleet, gpus=0, prefill_replicas=prefill, replicas=replicas))


def prompts_per_s(stepper: Stepper, prompt: int) -> float:
    """Prompts of so many tokens that a replica computes in a second: whole ones together in a step, or one in chunks."""
    most = stepper.server.engine.max_num_batched_tokens
    chunks = [Chunk(tokens=min(most, prompt - start), context=start) for start in range(0, prompt, most)]
    together = max(1, min(most // prompt, stepper.server.engine.max_num_seqs))
    batches = [StepBatch(chunks=(chunk,) * together) for chunk in chunks]
    times_us = stepper.table.times_us(sums_of(batches, stepper.server.seen))
    return together / float(times_us.sum()) * SECOND_US


def answers_per_s(stepper: Stepper, prompt: int, output: int, tpot_us: float) -> float:
    """Answers that a replica makes in a second with as many requests at once as its cache holds and as keep the time per token."""
    engine = stepper.server.engine
    held = stepper.room.sequences(prompt + output, engine.block_size) // stepper.server.batches
    sizes = np.unique(np.geomspace(1, max(1, min(held, engine.max_num_seqs)), SIZES).astype(int))
    batches = [StepBatch(decodes=(prompt + output // 2,) * int(size)) for size in sizes]
    times_us = stepper.table.times_us(sums_of(batches, stepper.server.seen))
    kept = times_us <= tpot_us
    rates = np.where(kept if kept.any() else sizes == 1, sizes / times_us, 0.0)
    return float(rates.max()) / output * SECOND_US


class LoadedServer:
    """A serving run whose loads are simulated."""

    def __init__(self, run: ServingRun, stepper: Stepper, tpot_us: float = inf) -> None:
        """`tpot_us` is the time per token up to which answers count, for pools that are to keep pace."""
        if run.fleet.gpus:
            run = with_replicas(run, stepper, tpot_us)
        self.run, self.stepper = run, stepper
        self.room = stepper.room
        prefill = run.prefill
        self.prefill = Stepper(prefill, stepper.coefficients) if prefill else None
        """The steps of the pool that computes prompts, where it is apart."""
        self.on_served: Callable[[int], None] = lambda requests: None
        """Called after each simulation, with the requests that it served."""

    @property
    def engine(self) -> EngineSettings:
        """The engine as one of its batches under way sees it, with its share of the places."""
        engine = self.run.server.engine
        places = engine.max_num_seqs // self.run.server.batches
        return replace(engine, asynchronous=self._asynchronous, max_num_seqs=places)

    @property
    def tables(self) -> tuple[Tables, Tables, Tables]:
        """The steps at the lower bound of their interval, in the middle, and at the upper bound: of prompts first where they are apart."""
        of_pools = [stepper.tables for stepper in (self.prefill, self.stepper) if stepper]
        low, middle, high = zip(*of_pools, strict=True)
        return low, middle, high

    @property
    def is_fleet(self) -> bool:
        """Whether there is more between requests and steps than one engine: other engines, or tiers behind its cache."""
        run = self.run
        return not run.fleet.is_alone or bool(run.tiers.used) or bool(run.load.prefix.turns > 1)

    @property
    def shares(self) -> int:
        """Streams of batches of which one is simulated for all; a fleet's are simulated one by one."""
        return 1 if self.is_fleet else self._streams

    @property
    def _streams(self) -> int:
        """Those of one replica of the server."""
        server = self.run.server
        return server.placement.dp * server.batches

    @property
    def _blocks(self) -> BlockPool:
        """The blocks of one of them."""
        return self.room.share(self.run.server.batches)

    @property
    def pools(self) -> tuple[Pool, ...]:
        """The engines: those that compute prompts first where they are apart. Each replica of attention is one."""
        fleet, each = self.run.fleet, self._streams
        answers = Pool(engines=each * max(fleet.replicas, fleet.most_replicas), blocks=self._blocks)
        if self.prefill is None:
            return (answers,)
        blocks = self.prefill.room.share(self.prefill.server.batches)
        return Pool(engines=each * fleet.prefill_replicas, blocks=blocks), answers

    def serve(self, traffic: Traffic, tables: Tables) -> Served:
        """The traffic, served with these steps."""
        if self.is_fleet:
            run = self.run
            ways = ways_of(run.server, run.prefill, run.tiers, run.fleet.layerwise, run.between_pools)
            served = serve_fleet(self.engine, self.pools, tables, traffic, run.fleet, ways)
        else:
            served = serve(self.engine, self._blocks, tables[0], traffic)
        self.on_served(len(traffic))
        return served

    def carried_by_pools(self, outcome: LoadOutcome) -> tuple[float, ...]:
        """Requests per second of a load that each pool carries with steps that are all full, prompts first; () where no pool is apart.
        A step with one request takes nearly as long as a full one, so that the time in steps says little of what a pool has left."""
        if self.prefill is None:
            return ()
        of_prompts, of_answers = self.pools
        load, served = self.run.load, outcome.served
        computed = max(1, round(served.chunk_tokens / len(served.traffic)))
        return (
            of_prompts.engines * prompts_per_s(self.prefill, computed),
            of_answers.engines * answers_per_s(self.stepper, load.mean_prompt, load.output, inf),
        )

    @property
    def _asynchronous(self) -> bool:
        return self.run.server.engine.asynchronous and self.stepper.coefficients.asynchronous

    @property
    def at_once(self) -> int:
        """Requests of the load's mean lengths that run at once on one replica: as many as its cache holds, and the engine takes."""
        return min(self.held, self.run.server.engine.max_num_seqs)

    @property
    def held(self) -> int:
        """Requests of the load's mean lengths that the cache of one replica holds."""
        load = self.run.load
        return self.room.sequences(load.mean_prompt + load.output, self.engine.block_size)

    @property
    def client(self) -> Client:
        return self.stepper.client

    def as_configured(self) -> LoadOutcome:
        """The outcome of the config's own load: its file's requests where it has one, every dp-th of them on one replica."""
        return self.under(self.run.load, self._recorded)

    def under(self, load: Load, traffic: Traffic | None = None) -> LoadOutcome:
        """The outcome of a load, or of one replica's requests in its place."""
        requests = traffic or self._requests(load)
        low, middle, high = (self.serve(requests, tables) for tables in self.tables)
        factors = self.stepper.first_token_factors(requests)
        return LoadOutcome(
            load=load,
            latency=latency_of(middle, self.client),
            low=latency_of(low, self.client, factors.low),
            high=latency_of(high, self.client, factors.high),
            served=middle,
            blocks=self._blocks.blocks,
            streams=self.shares,
            replicas=1 if self.is_fleet else self.run.server.placement.dp,
        )

    def at_rates(self, rates: Sequence[float]) -> Iterator[LoadOutcome]:
        """The outcome at each rate, of the config's load or of its file's requests."""
        for rate in rates:
            yield self.under(at_rate(self.run.load, rate))

    def capacity(self) -> Interval:
        """Requests per second of all replicas beyond which the queue grows, with interval; faster steps carry more."""
        if self.run.load.prefix.turns > 1:
            high, middle, low = (self._most_that_settles(tables) for tables in self.tables)
            return capacity_interval(min(low, middle), middle, max(middle, high))
        load, places = self._share(self.run.load), self._places
        high, middle, low = (
            self.shares
            * saturated_per_s(lambda traffic, tables=tables: self.serve(traffic, tables), places, load, self._recorded)  # type: ignore[misc]
            for tables in self.tables
        )
        return capacity_interval(low, middle, high)

    @property
    def _places(self) -> int:
        """Requests that run at once on the engines that are simulated together."""
        each = self.pools[-1]
        return places_of(self.engine, each.blocks, self._share(self.run.load)) * (each.engines if self.is_fleet else 1)

    @property
    def capacity_requests(self) -> int:
        """Requests that `capacity` simulates: of conversations, about as many as a search takes whose first guess is near."""
        if self.run.load.prefix.turns > 1:
            return len(self.tables) * (HALVINGS + 2) * self._judged(self.run.load.rate)
        return len(self.tables) * saturating_requests(self._places, self._recorded)

    def requests_at(self, rate: float) -> int:
        """Requests that `times_at` simulates at a rate, as far as they are drawn."""
        return max(self._judged(rate), round(self.run.load.duration_s * rate / self.shares))

    def _most_that_settles(self, tables: Tables) -> float:
        """The highest rate of conversations at which the queue does not grow. A loop with so many in flight does not tell: those that pause
        leave the engines idle, and so many more that none is idle find less in the caches than those of a rate."""

        def settles(rate: float) -> bool:
            load = at_rate(self.run.load, rate)
            requests = self._requests(load, self._judged(rate))
            latency = latency_of(self.serve(requests, tables), self.client)
            # where hardly any conversation ends before the last one begins, a queue no longer grows but is long
            waits = latency.mean_waiting > max(LEAST_GROWN, GROWING * len(requests))
            return not waits and not _outgrows(latency.queue_growth_per_s, load, self.shares)

        most = 1.0
        while settles(most):
            most *= 2
        while not settles(most / 2):
            most /= 2
        return bisected(settles, most / 2, most).holds

    def _judged(self, rate: float) -> int:
        """Requests that a rate is judged by in a search, at least."""
        if self.run.load.prefix.turns == 1:
            return SEARCHED
        return round(min(max(SEARCHED, CONVERSED_S * rate), MOST_CONVERSED))

    def times_at(self, rate: float, tables: Tables | None = None) -> RequestTimes:
        """The times of SEARCHED requests or more of the config's load at a rate, with the steps of other tables than the middle ones."""
        requests = self._requests(at_rate(self.run.load, rate), self._judged(rate))
        return times_of(self.serve(requests, tables or self.tables[1]), self.client)

    @property
    def _recorded(self) -> Traffic | None:
        """The requests of the config's file that one replica gets."""
        return self.run.traffic and every(self.run.traffic, self.shares)

    def _requests(self, load: Load, least: int = 0) -> Traffic:
        """One replica's requests of a load, at least so many of them in an open loop: drawn, or those of the config's file at its rate."""
        share, recorded = self._share(load), self._recorded
        if recorded is not None:
            return at_rate_of(played_again(recorded, least), share.rate)
        longest = max(share.duration_s, least / share.rate) if share.rate else share.duration_s
        return traffic_of(replace(share, duration_s=longest))

    def _share(self, load: Load) -> Load:
        """The load of one replica."""
        replicas = self.shares
        concurrency = -(-load.concurrency // replicas)
        return replace(load, rate=load.rate / replicas, concurrency=concurrency)
