"""A server under a load: latencies with intervals, the use of its cache, and the load that it can carry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from predict.interval import Interval
from predict.serving.batch import StepBatch
from predict.serving.coefficients import Client
from predict.serving.config import ServingRun
from predict.serving.kv_cache import CacheRoom
from predict.serving.latency import WATCHED, Latency, RequestTimes, latency_of, times_of
from predict.serving.requests import at_rate_of, played_again
from predict.serving.server import EngineSettings
from predict.serving.simulate import Served, capacity_interval, capacity_per_s, serve
from predict.serving.step_table import StepTable
from predict.serving.stepper import Stepper
from predict.serving.traffic import Load, Traffic, at_rate, every, traffic_of

GROWING = 0.03
"""Share of the arrivals by which a queue grows that is not chance: below saturation it is under 0.01 in a minute."""
LEAST_GROWN = 5.0
"""Requests by which a queue must have grown: in a load of few requests, a burst looks like a large share."""
SEARCHED = 1000
"""Requests that a rate is judged by in a search, at least: a p99 rests on ten of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadOutcome:
    """One replica under its share of a load, and with steps at the bounds of their interval."""

    load: Load
    latency: Latency
    low: Latency
    high: Latency
    served: Served
    room: CacheRoom
    replicas: int
    """Replicas of attention, and batches of pipeline stages, among which the load is divided."""

    @property
    def mean_batch(self) -> StepBatch:
        """A step with as many decodes as there are requests in a step on average, each halfway through its answer."""
        load = self.load
        return StepBatch(decodes=(load.prompt + load.output // 2,) * max(1, round(self.served.mean_requests)))

    @property
    def kv_share(self) -> float:
        """Share of the cache's blocks in use, on average over the time of steps."""
        return self.served.mean_blocks / self.room.blocks

    @property
    def grows(self) -> bool:
        """Whether the queue takes up more than GROWING of the requests that arrive, and has grown by LEAST_GROWN."""
        return self._grows(self.latency)

    @property
    def may_grow(self) -> bool:
        """Whether it does with steps at the upper bound of their interval."""
        return self._grows(self.high)

    @property
    def requests_per_s(self) -> float:
        """Completions per second of all replicas."""
        return self.replicas * self.latency.requests_per_s

    @property
    def output_tokens_per_s(self) -> float:
        """Those of all replicas."""
        return self.replicas * self.latency.output_tokens_per_s

    @property
    def answered(self) -> Interval:
        """Requests per second that all replicas answer: as many as arrive where the queue does not grow, else those
        that end in a second."""
        rates = [self._answered_per_s(each) for each in (self.low, self.latency, self.high)]
        return Interval(median=rates[1], low=min(rates), high=max(rates))

    def _answered_per_s(self, latency: Latency) -> float:
        arrives = not self.load.concurrency and self.load.rate and not self._grows(latency)
        return self.load.rate if arrives else self.replicas * latency.requests_per_s

    def _grows(self, latency: Latency) -> bool:
        growth, load = latency.queue_growth_per_s, self.load
        grown = growth * load.duration_s * WATCHED
        return not load.concurrency and growth > GROWING * load.rate / self.replicas and grown >= LEAST_GROWN


class LoadedServer:
    """A serving run whose loads are simulated."""

    def __init__(self, run: ServingRun, stepper: Stepper) -> None:
        self.run, self.stepper = run, stepper
        self.room = stepper.room

    @property
    def engine(self) -> EngineSettings:
        engine = self.run.server.engine
        # batches of pipeline stages share the places of their engine
        places = -(-engine.max_num_seqs // self.run.server.placement.pp)
        return replace(engine, asynchronous=self._asynchronous, max_num_seqs=places)

    @property
    def _asynchronous(self) -> bool:
        return self.run.server.engine.asynchronous and self.stepper.coefficients.asynchronous

    @property
    def at_once(self) -> int:
        """Requests of the load's mean lengths that run at once on one replica: as many as its cache holds, and the engine takes."""
        load = self.run.load
        held = self.room.sequences(load.prompt + load.output, self.engine.block_size)
        return min(held, self.engine.max_num_seqs)

    @property
    def client(self) -> Client:
        return self.stepper.client

    def as_configured(self) -> LoadOutcome:
        """The outcome of the config's own load: its file's requests where it has one, every dp-th of them on one replica."""
        return self.under(self.run.load, self._recorded)

    def under(self, load: Load, traffic: Traffic | None = None) -> LoadOutcome:
        """The outcome of a load, or of one replica's requests in its place."""
        requests = traffic or self._requests(load)
        low, middle, high = (serve(self.engine, self.room.pool, table, requests) for table in self.stepper.tables)
        factors = self.stepper.first_token_factors(requests)
        return LoadOutcome(
            load=load,
            latency=latency_of(middle, self.client),
            low=latency_of(low, self.client, factors.low),
            high=latency_of(high, self.client, factors.high),
            served=middle,
            room=self.room,
            replicas=self.run.server.placement.streams,
        )

    def at_rates(self, rates: Sequence[float]) -> Iterator[LoadOutcome]:
        """The outcome at each rate, of the config's load or of its file's requests."""
        for rate in rates:
            yield self.under(at_rate(self.run.load, rate))

    def capacity(self) -> Interval:
        """Requests per second of all replicas beyond which the queue grows, with interval; faster steps carry more."""
        load = self._share(self.run.load)
        replicas = self.run.server.placement.streams
        high, middle, low = (
            replicas * capacity_per_s(self.engine, self.room.pool, table, load, self._recorded)
            for table in self.stepper.tables
        )
        return capacity_interval(low, middle, high)

    def times_at(self, rate: float, table: StepTable | None = None) -> RequestTimes:
        """The times of SEARCHED requests or more of the config's load at a rate, with the steps of another table than the middle one."""
        requests = self._requests(at_rate(self.run.load, rate), SEARCHED)
        return times_of(serve(self.engine, self.room.pool, table or self.stepper.table, requests), self.client)

    @property
    def _recorded(self) -> Traffic | None:
        """The requests of the config's file that one replica gets."""
        return self.run.traffic and every(self.run.traffic, self.run.server.placement.streams)

    def _requests(self, load: Load, least: int = 0) -> Traffic:
        """One replica's requests of a load, at least so many of them in an open loop: drawn, or those of the config's file at its rate."""
        share, recorded = self._share(load), self._recorded
        if recorded is not None:
            return at_rate_of(played_again(recorded, least), share.rate)
        longest = max(share.duration_s, least / share.rate) if share.rate else share.duration_s
        return traffic_of(replace(share, duration_s=longest))

    def _share(self, load: Load) -> Load:
        """The load of one replica."""
        replicas = self.run.server.placement.streams
        concurrency = -(-load.concurrency // replicas)
        return replace(load, rate=load.rate / replicas, concurrency=concurrency)
