"""One server with one model of its steps: times of batches, and the parts that make them up."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import log1p

import numpy as np

from predict.interval import Interval, independent_causes, width_of_server
from predict.layers.served import Group
from predict.prices.kernels import UNMEASURED_WIDTH
from predict.prices.sample_provenance import ANOTHER_CPU, is_another_cpu
from predict.run.calibration_terms import NINETY
from predict.serving.batch import Chunk, StepBatch, sums_of
from predict.serving.coefficients import Client, Coefficients, shipped_coefficients
from predict.serving.drafting import Paying, features_with_drafts, paying, speculation_width
from predict.serving.formats import format_width
from predict.serving.kernels import prefill_attention, prices_of, step_kernels, with_launches
from predict.serving.kv_cache import CacheRoom, cache_room, require_batch_room
from predict.serving.rules import require_positions
from predict.serving.server import Server, served_mixers
from predict.serving.step_model import KERNELS, Features, step_model
from predict.serving.step_table import StepTable
from predict.serving.traffic import Traffic
from sampling.arithmetic.operator import Operator
from sampling.call import Counted

USUAL_STEP = StepBatch(chunks=(Chunk(tokens=256),), decodes=(1_000,) * 16)
"""A mixed step, in which every term of a model has its share."""
BOUND: tuple[Group, ...] = ("gemm", "moe", "attention")
"""Groups of kernels that the speed of light counts: a cache may hold what the others move."""


# Log half-widths at 90 % that servers add to the shipped coefficients' own, which rest on vLLM's stages of dense models and of mixtures of
# up to 16 experts, each on the GPUs of one node in slices. Read off 577 closed loops of serving_concurrency.csv, all at once: with them
# 94 % of TPOT of 788 is inside; MLA's and the network's are set, with few rows each.

ANOTHER_ENGINE = 0.18
MANY_EXPERTS = 0.2
"""Of mixtures of more than FEW_EXPERTS."""
FEW_EXPERTS = 16
EXPERTS_APART = 0.2
"""Of whole experts on each GPU, and of replicas of attention."""
LATENT = 0.15
"""Of layers that keep a latent vector in place of keys and values."""
BETWEEN_NODES = 0.2
EAGER = 0.25
"""Of the host's launches, whose time is one issue's (LAYER_US)."""
BURST = 0.6
"""Of first tokens in a loop whose first requests arrive together, beyond the width of steps: they wait for what a benchmark sent at
once, and for how its answers keep in step. With it 83 % of the TTFT of the same rows is inside."""


@dataclass(frozen=True, eq=False)
class Stepper:
    """The steps of a server under a model's coefficients."""

    server: Server
    coefficients: Coefficients

    @cached_property
    def features(self) -> Features:
        return features_with_drafts(step_model(self.coefficients.model), self.server)

    @cached_property
    def room(self) -> CacheRoom:
        """The cache that the server has room for. InfeasibleError where no block fits."""
        return cache_room(self.server)

    @property
    def client(self) -> Client:
        """The time outside of the steps; an engine that the coefficients were not fitted to adds its own."""
        client, engine = self.coefficients.client, self.server.engine
        if self.coefficients.is_of_engine(self.server.engine_name):
            return client
        return replace(client, first_token_us=client.first_token_us + engine.first_token_us)

    def first_token_factors(self, traffic: Traffic) -> Interval:
        """Factors on the time to first tokens at the bounds of its interval, beyond those of steps."""
        bursts = traffic.in_flight and not traffic.is_settled and not self.coefficients.server
        return Interval.from_log(1.0, BURST if bursts else 0.0)

    @cached_property
    def table(self) -> StepTable:
        return with_launches(self._kernels, self.server)

    @cached_property
    def tables(self) -> tuple[StepTable, StepTable, StepTable]:
        """The steps at the lower bound of their interval, in the middle, and at the upper bound. The lower one counts no time of
        the host in an engine that the coefficients were not fitted to: that engine may hide all of it."""
        factors = self.interval_factors
        return self._fastest.scaled(factors.low), self.table, self.table.scaled(factors.high)

    @cached_property
    def _fastest(self) -> StepTable:
        """The steps at their lower bound, but for its factor."""
        if self.coefficients.is_of_engine(self.server.engine_name):
            return self.table
        model = step_model(self.coefficients.model)
        weights = model.without_host(self.coefficients.values)
        return with_launches(model.table_from(self.server, self.features, weights), self.server)

    @cached_property
    def _kernels(self) -> StepTable:
        """The steps without the host's launches."""
        return step_model(self.coefficients.model).table_from(self.server, self.features, self.coefficients.values)

    @cached_property
    def interval_factors(self) -> Interval:
        """Factors on the time of steps. An architecture that the coefficients were not fitted to makes the interval wider, and so do terms
        that no measurement covers. Coefficients fitted to a server of one's own hold everything else already; under those of several
        servers, an engine and kinds of servers that they do not know count, and rows of another CPU."""
        return Interval.from_log(1.0, self.half_width)

    @cached_property
    def half_width(self) -> float:
        """Log half-width at 90 % of those factors."""
        known = self.coefficients.is_of_architecture(self.server.cluster.gpu.architecture)
        elsewhere = self._rows_are_of_another_cpu and self.coefficients == shipped_coefficients(KERNELS.name)
        return width_of_server(
            self.coefficients.half_width,
            0.0 if known else UNMEASURED_WIDTH,
            self.unmeasured_width,
            ANOTHER_CPU if elsewhere else 0.0,
            speculation_width(self.server),
            format_width(self.server.products, self.server.expert_products),
            *([] if self.coefficients.server else self._widths_of_kind),
        )

    def paying(self, context: int) -> Paying:
        """The gain of drafts by number of requests that decode over so many tokens; for a server that has drafts."""
        without = replace(self, server=self.server.without_speculation)
        return paying(self.server, self.table, without.table, context)

    @property
    def _widths_of_kind(self) -> Iterator[float]:
        """Widths for kinds of servers that the coefficients do not rest on."""
        server, experts = self.server, self.server.model.experts
        if not self.coefficients.is_of_engine(server.engine_name):
            yield ANOTHER_ENGINE
        if experts and experts.count > FEW_EXPERTS:
            yield MANY_EXPERTS
        if experts and (server.ep > 1 or server.placement.dp > 1):
            yield EXPERTS_APART
        if any(each.mixer.NAME == "latent" for each in served_mixers(server)):
            yield LATENT
        if server.cluster.nodes > 1:
            yield BETWEEN_NODES
        if server.engine.enforce_eager:
            yield EAGER

    @property
    def unmeasured(self) -> tuple[str, ...]:
        """The terms at their priors that a usual step of this server has."""
        return tuple(name for name in self.coefficients.untold if self._usual_features[name] > 0)

    @cached_property
    def _usual_features(self) -> Mapping[str, float]:
        terms = step_model(self.coefficients.model).terms
        return dict(zip(terms, map(float, self.features(sums_of([USUAL_STEP], self.server.seen))[0]), strict=True))

    @property
    def unmeasured_width(self) -> float:
        """Log half-width at 90 % that terms at their priors add to a usual step."""
        if not self.unmeasured:
            return 0.0
        terms, features = step_model(self.coefficients.model).terms, self._usual_features
        whole_us = sum(self.coefficients.values[name] * value for name, value in features.items())
        doubt_us = NINETY * independent_causes(*(terms[name].width * features[name] for name in self.unmeasured))
        return float(log1p(doubt_us / whole_us))

    @property
    def _rows_are_of_another_cpu(self) -> bool:
        samples = prices_of(self.server).provenance["samples"]
        sampled_on = str(samples["provenance"]["device"].get("name", "")) if samples else ""
        return bool(sampled_on) and is_another_cpu(self.server.cluster, sampled_on)

    def step_times(self, batches: Sequence[StepBatch]) -> tuple[Interval, ...]:
        """The time of each batch's step. UserError for a batch that the engine does not take, ConfigError for a request beyond the model's
        positions, InfeasibleError for a batch that the cache cannot hold."""
        require_positions(self.server, batches)
        sums = sums_of(batches, self.server.seen)
        times = self.table.times_us(sums)
        least = times if self._fastest is self.table else self._fastest.times_us(sums)
        factors = self.interval_factors
        bounds = [each.tolist() for each in (factors.low * least, times, factors.high * times)]
        require_batch_room(self.room.pool, self.server.engine.block_size, batches, sums)
        return tuple(Interval(median=time, low=first, high=last) for first, time, last in zip(*bounds, strict=True))

    def factors_at(self, batch: StepBatch) -> Interval:
        """The bounds of a batch's step over its middle, which are those of a server's whole time where its steps are like it."""
        sums = sums_of([batch], self.server.seen)
        low, middle, high = (float(table.times_us(sums)[0]) for table in self.tables)
        return Interval(median=middle, low=low, high=high).ratio_to(middle)

    def ledger_us(self, batch: StepBatch) -> Mapping[str, float]:
        """Term of the model → its µs in the step of a batch; they add up to the step without its table's interpolation.

        Steps that the host launches have `launches`, the time in which the GPU waits for it.
        """
        sums = sums_of([batch], self.server.seen)
        features = self.features(sums)[0]
        weights = self.coefficients.values
        names = list(step_model(self.coefficients.model).terms)
        ledger = {name: float(weights[name] * value) for name, value in zip(names, np.asarray(features), strict=True)}
        if waits_us := float((self.table.times_us(sums) - self._kernels.times_us(sums))[0]):
            ledger["launches"] = waits_us
        return ledger

    def bound_us(self, batch: StepBatch, *, experts_read: bool = True) -> float:
        """The speed of light of a batch's step: each product and attention at its slower of peak FLOP/s and stated bandwidth.

        Without `experts_read` experts take their FLOPs alone: a mean of batches chooses more of them than the batches do on average.
        """
        kernels = step_kernels(self.server, batch)
        own_us = sum(
            _bound_us(one, self.server, is_read=experts_read or group != "moe")
            for group in BOUND
            for one in kernels[group]
        )
        return own_us + sum(_context_bound_us(chunk, self.server) for chunk in batch.chunks if chunk.context)

    def sources(self, batch: StepBatch) -> Mapping[str, float]:
        """Source of times → its share of the time of a batch's kernels, which add up to 1."""
        found: dict[str, float] = {}
        counted = [one for calls in step_kernels(self.server, batch).values() for one in calls]
        for priced in prices_of(self.server).priced(counted):
            found[priced.time.source] = found.get(priced.time.source, 0.0) + priced.total_us
        total = sum(found.values())
        return {source: time_us / total for source, time_us in found.items()}


def _context_bound_us(chunk: Chunk, server: Server) -> float:
    """The least time that the tokens before a chunk add to its attention: the time of a prompt up to its end, less one up to its
    start and the chunk by itself."""
    own, until, before = (
        sum(_bound_us(one, server, is_read=True) for one in prefill_attention(server, tokens))
        for tokens in (chunk.tokens, chunk.context + chunk.tokens, chunk.context)
    )
    return max(0.0, until - before - own)


def _bound_us(one: Counted, server: Server, *, is_read: bool) -> float:
    """The least time of a call whose weights, or keys, no cache holds from one step to the next."""
    call, gpu = one.call, server.cluster.gpu
    if not isinstance(call, Operator):
        return 0.0
    compute_us = call.executed_flops(one.phase) / gpu.peak_flops_per_us(call.compute_dtype)
    moved_us = call.least_bytes(one.phase) / gpu.bytes_per_us() if is_read else 0.0
    return one.count * max(compute_us, moved_us)


def stepper(server: Server, model: str = KERNELS.name) -> Stepper:
    """The steps of a server by the coefficients that come with a model. UserError for another model."""
    return Stepper(server, shipped_coefficients(model))
