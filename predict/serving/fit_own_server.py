"""Coefficients fitted to the requests that one server answered under several loads."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated

import numpy as np

from predict.run.calibration_terms import NINETY
from predict.serving.batch import Chunk, StepBatch, sums_of
from predict.serving.coefficients import Client, Coefficients, Weight
from predict.serving.config import ServingRun
from predict.serving.fitting import (
    ERROR,
    LEAST_EXPERIMENTS,
    NINETY_PERCENT,
    CoefficientFit,
    Observed,
    bounded_weights,
    deviations,
    draft_of,
    unmeasured_terms,
    with_fit,
    with_grounds,
)
from predict.serving.kernels import kernel_features
from predict.serving.latency import latency_of
from predict.serving.requests import MeasuredRequests, read_measured_requests, read_rows
from predict.serving.server import Server
from predict.serving.simulate import serve
from predict.serving.step_model import KERNELS, StepModel, StepTerm
from predict.serving.stepper import Stepper
from predict.serving.traffic import Load, Traffic, every, load_of, with_known_prompts
from predict.truth_table import header_of
from regressors.features.arrays import Floats, Ints
from sampling.errors import ConfigError, UserError
from sampling.files.faults import Fault, counted
from sampling.files.schema import Key
from sampling.units import SECOND_US


@dataclass(frozen=True, eq=False)
class AnsweredLoad:
    """The requests of one file, answered by the server of a config."""

    name: str
    run: ServingRun
    requests: MeasuredRequests

    @cached_property
    def traffic(self) -> Traffic:
        """The requests of one replica."""
        traffic = every(self.requests.traffic, self.run.server.placement.dp)
        return with_known_prompts(traffic, self.run.load)

    @property
    def load(self) -> Load:
        """Their rate and mean lengths, and the prompts that are known."""
        known = int((self.traffic.group >= 0).any())
        shared = round(float(self.traffic.shared.mean()))
        load = load_of(self.traffic, self.run.load)
        # a prompt that is known in part counts by the tokens that are known on average; the answers to requests that arrive at once
        # end one after the other
        return replace(load, shared_tokens=known * shared, rate=load.rate or self._answers_per_s)

    @property
    def _answers_per_s(self) -> float:
        """Requests of one replica per second from the first arrival to the last answer."""
        ends_us = self.requests.traffic.arrival_us + self.requests.e2e_us
        return len(self.traffic) / float(ends_us.max()) * SECOND_US

    @property
    def observed(self) -> Observed:
        return Observed(
            experiment=self.name,
            engine=self.run.server.engine,
            load=self.load,
            tpot_us=self.requests.tpot_us,
            seen=self.run.server.seen,
        )


def fitted_to_requests(run: ServingRun, paths: Sequence[Path], model: StepModel, source: str) -> Coefficients:
    """The model's weights by the time per token of each file's requests, then the client's time by their waits for a first token.

    ConfigError for a faulty file; UserError for too few of them, for a model whose weights are given, and for an engine whose
    host decides the time of steps.
    """
    engine = run.server.engine
    if engine.enforce_eager:
        raise UserError(f"{run.name}: engine.enforce_eager: the host's launches hide what is fitted; switch it off")
    names, requests = [str(path) for path in paths], every_file(paths)
    if len(names) < LEAST_EXPERIMENTS:
        raise UserError(
            f"{counted(len(names), 'file')} of requests: {', '.join(names)}; give at least {LEAST_EXPERIMENTS}, one for each load, so that "
            "each can be left out once"
        )
    draft = draft_of(model, source=source, experiments=names, asynchronous=engine.asynchronous)
    stepper = Stepper(run.server, draft)
    loads = [AnsweredLoad(name, run, one) for name, one in zip(names, requests, strict=True)]
    fit = CoefficientFit(model, [one.observed for one in loads], [stepper.features] * len(loads))
    waits = []
    for one in loads:
        table = model.table_from(run.server, stepper.features, fit.named(fit.left_out[one.name]))
        simulated = latency_of(serve(engine, stepper.room.pool, table, one.traffic), Client()).ttft.mean_us
        waits.append((simulated, float(one.requests.ttft_us.mean())))
    return with_grounds(with_fit(draft, fit, waits), [run.server])


def every_file(paths: Iterable[Path]) -> list[MeasuredRequests]:
    """The requests of each file; ConfigError with the faults of all of them."""
    found, faults = [], []
    for path in paths:
        try:
            found.append(read_measured_requests(path))
        except ConfigError as error:
            faults.append(str(error))
    if faults:
        raise ConfigError("\n".join(faults))
    return found


# Coefficients of the kernel model fitted to single steps of one server, whose batches and times are known.

HOST = ("layer", "step", "request")
LOOSE = 100.0
"""Times by which the width and the bound of a host's term are wider on a CPU than those of serving engines: another program runs there."""
LEAST_KINDS = 8
"""Kinds of steps, so that some can be left out and the others still distinguish the terms."""
BLOCKS = 10
"""Blocks of kinds that are left out together, at most."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TimedBatch:
    """A batch, and the time of a step with it."""

    batch: StepBatch
    time_us: float

    @property
    def kind(self) -> tuple[int, int]:
        """Decodes and tokens of chunks; steps of one kind differ by their contexts alone."""
        return len(self.batch.decodes), sum(chunk.tokens for chunk in self.batch.chunks)


def fitted_to_steps(steps: Sequence[TimedBatch], server: Server, source: str) -> Coefficients:
    """The kernel model's weights by the medians of each kind of step of a server. UserError for too few kinds."""
    features = kernel_features(server)
    kinds: dict[tuple[int, int], list[TimedBatch]] = {}
    for step in steps:
        kinds.setdefault(step.kind, []).append(step)
    if len(kinds) < LEAST_KINDS:
        raise UserError(f"{source}: {len(kinds)} kinds of steps; time at least {LEAST_KINDS} different batches")
    rows = np.array(
        [features(sums_of([one.batch for one in each], server.seen)).mean(axis=0) for each in kinds.values()]
    )
    times = np.array([np.median([one.time_us for one in each]) for each in kinds.values()])
    terms = _terms(server)
    weights = _weights(rows, times, terms)
    block = blocks_of(list(kinds))
    without = np.array([_weights(rows[block != one], times[block != one], terms) for one in range(block.max() + 1)])
    misses = np.abs(np.log((rows * without[block]).sum(axis=1) / times))
    jackknife = np.sqrt((len(without) - 1) * without.var(axis=0))
    # steps without experts say nothing of `moe`, and those of one GPU nothing of `all_reduce`: then the prior's own width counts
    spread = NINETY * np.maximum(jackknife, deviations(rows, times, np.ones(len(times)), list(terms.values()), ERROR))
    found = Coefficients(
        model=KERNELS.name,
        weights={
            name: Weight(
                value=float(weight), low=max(term.low, float(weight - wide)), high=min(term.high, float(weight + wide))
            )
            for (name, term), weight, wide in zip(terms.items(), weights, spread, strict=True)
        },
        client=Client(),
        asynchronous=server.engine.asynchronous,
        half_width=float(np.quantile(misses, NINETY_PERCENT)),
        source=source,
        untold=unmeasured_terms(terms, rows, times),
    )
    return with_grounds(found, [server])


def _terms(server: Server) -> Mapping[str, StepTerm]:
    """The terms of the kernel model, those of the host loose on a CPU."""
    if server.cluster.gpu.kind != "cpu":
        return KERNELS.terms
    return {
        name: replace(term, width=LOOSE * term.width, high=LOOSE * term.high) if name in HOST else term
        for name, term in KERNELS.terms.items()
    }


def _weights(rows: Floats, times: Floats, terms: Mapping[str, StepTerm]) -> Floats:
    return bounded_weights(rows, times, np.ones(len(times)), list(terms.values()), ERROR)


def blocks_of(kinds: Sequence[tuple[int, int]]) -> Ints:
    """The block of each kind of step, from 0. A block has a tenth of the different numbers of decodes, or of tokens where there are more of
    these: a kind that is left out alone is known from its neighbours, so that its error is an interpolation's."""
    each = np.array(kinds)
    most = max((np.unique(column, return_inverse=True)[1] for column in each.T), key=np.max)
    numbers = int(most.max()) + 1
    found: Ints = most * min(BLOCKS, numbers) // numbers
    return found


# Coefficients fitted to the steps of one engine, as its log has them: CSV tables with a row for each step.
#
#     step_ms,decodes,decode_context[,prefills,prefill_tokens,prefill_context]
#
# `decode_context` and `prefill_context` are tokens in the cache, of all decodes and of all chunks together.

TIME = "step_ms"
"""The column by which a table of steps differs from one of requests."""
Count = Annotated[int, Key(minimum=0)]


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineStep:
    """One row."""

    step_ms: Annotated[float, Key(maximum=1e7)]
    """Time from the start of the step to the start of the next, or to its end where the engine does nothing in between."""
    decodes: Count = 0
    decode_context: Count = 0
    """Cached tokens of all decodes together."""
    prefills: Count = 0
    prefill_tokens: Count = 0
    """Prompt tokens that the step computes."""
    prefill_context: Count = 0
    """Cached tokens of all chunks together."""

    def contradictions(self) -> Iterator[Fault]:
        if self.prefill_tokens < self.prefills or (self.prefill_tokens and not self.prefills):
            problem = f"{self.prefill_tokens} tokens of {self.prefills} chunks; each chunk has 1 or more"
            yield Fault(path="prefill_tokens", problem=problem)
        elif not self.decodes and not self.prefills:
            yield Fault(path="decodes", problem="0 with no prefills; leave out steps that do nothing")
        for context, requests in (("decode_context", "decodes"), ("prefill_context", "prefills")):
            if getattr(self, context) and not getattr(self, requests):
                problem = f"{getattr(self, context)} tokens in the cache of 0 {requests}; give their number"
                yield Fault(path=context, problem=problem)

    @property
    def timed(self) -> TimedBatch:
        """The step with its sums divided evenly among its requests."""
        decodes = tuple(_shares(self.decode_context, self.decodes))
        chunks = zip(
            _shares(self.prefill_tokens, self.prefills), _shares(self.prefill_context, self.prefills), strict=True
        )
        batch = StepBatch(
            chunks=tuple(Chunk(tokens=tokens, context=context) for tokens, context in chunks), decodes=decodes
        )
        return TimedBatch(batch=batch, time_us=1e3 * self.step_ms)


def is_step_log(path: Path) -> bool:
    """Whether a file is a table of steps."""
    return TIME in header_of(path)


def fitted_to_log(run: ServingRun, paths: Sequence[Path], model: StepModel, source: str) -> Coefficients:
    """The kernel model's weights by the steps of a config's server. The client's time, which steps do not show, is 0.

    ConfigError for a faulty file; UserError for another model, for a step that the engine does not take, and for too few kinds of steps.
    """
    if model is not KERNELS:
        raise UserError(f"--model: {model.name} is fitted to requests; steps fit {KERNELS.name}")
    steps = [row.timed for path in paths for row in read_rows(path, EngineStep, each="step").values()]
    server = run.server
    most = max(max(len(one.batch.decodes), sum(one.kind)) for one in steps)
    limit = server.engine.max_num_batched_tokens
    if most > limit:
        raise UserError(
            f"{source}: a step has {most:,} tokens, where {run.name}'s engine takes {limit:,}; set engine.max_num_batched_tokens as it was"
        )
    return fitted_to_steps(steps, server, source)


def _shares(total: int, count: int) -> list[int]:
    """A total in whole parts that differ by 1 at most."""
    return [(total * (place + 1)) // count - (total * place) // count for place in range(count)]
