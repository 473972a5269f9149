"""The answer on a server: its loads, the rate that it carries, the rate at which objectives hold, and what its tokens cost."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, inf, isfinite
from pathlib import Path

import numpy as np

from predict.config.document import Config
from predict.interval import Interval
from predict.ledger.training_cost import Price, parse_price
from predict.run.durations import duration_us
from predict.serving.batch import Chunk, StepBatch, sums_of
from predict.serving.coefficients import chosen_coefficients
from predict.serving.config import load_serving
from predict.serving.latency import RequestTimes, times_of
from predict.serving.loaded_server import HALVINGS, Bracket, LoadedServer, LoadOutcome, Tables, bisected
from predict.serving.stepper import Stepper
from sampling.errors import Checks, InfeasibleError, UserError
from sampling.files.faults import did_you_mean, shown
from sampling.number_text import as_given, duration, significant

# The cost of the tokens of a server, from the price of its GPUs and the requests that it answers.

SECONDS_PER_HOUR, MILLION = 3600.0, 1e6


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenCost:
    """Money per million tokens. The GPUs cost the same whatever they do, so a server that is busier has cheaper tokens."""

    output: Interval
    """All of the cost over the output tokens: prompts are included. Infinite where the rate may be 0."""
    input_alone: Interval
    """The part of prompts over the prompt tokens: the cost is divided by the time that each takes in the server's steps, or by the GPUs of
    pools that are apart."""
    output_alone: Interval
    """The rest over the output tokens."""
    divided_by: str
    """The measure by which prompts and answers share the cost."""
    currency: str
    gpu_hour: float
    """The price of one GPU for an hour."""


def cost_of_load(server: LoadedServer, outcome: LoadOutcome, price: Price) -> TokenCost:
    """The cost of a load's tokens; the bounds are those of what the server answers per second, which below saturation the load decides."""
    return cost_at_rate(server, outcome, outcome.answered, price)


def cost_at_rate(server: LoadedServer, outcome: LoadOutcome, rate: Interval, price: Price) -> TokenCost:
    """The cost at a rate with its bounds, of requests like those of `outcome`, the load at that rate."""
    run = server.run
    gpu_hour = price.per_gpu(run.gpus_per_node)
    per_s = gpu_hour * run.gpus / SECONDS_PER_HOUR
    request = rate.dividing(per_s)
    traffic, share = outcome.served.traffic, prompts_share(server, outcome)
    prompt, output = (float(tokens.mean()) for tokens in (traffic.prompt, traffic.output))
    return TokenCost(
        output=request.scaled(MILLION / output),
        input_alone=request.scaled(MILLION * share / prompt),
        output_alone=request.scaled(MILLION * (1 - share) / output),
        divided_by="the GPUs of each pool" if server.run.prefill else "time in steps",
        currency=price.currency,
        gpu_hour=gpu_hour,
    )


def prompts_share(server: LoadedServer, outcome: LoadOutcome) -> float:
    """Share of the cost that prompts have: the GPUs of their pool where it is apart, else the share of the time in steps that
    computing them adds, by the load's chunks with the mean number of decodes."""
    if prefill := server.run.prefill:
        return prefill.placement.gpus * server.run.fleet.prefill_replicas / server.run.gpus
    served, engine = outcome.served, server.engine
    decodes = outcome.mean_batch.decodes
    tokens = round(served.chunk_tokens / len(served.traffic))
    room = max(1, engine.max_num_batched_tokens - len(decodes))
    chunk = StepBatch(chunks=(Chunk(tokens=max(1, min(tokens, room))),), decodes=decodes)
    with_chunk, alone = server.stepper.table.times_us(
        sums_of([chunk, StepBatch(decodes=decodes)], server.run.server.seen)
    )
    added_us = (with_chunk - alone) * served.chunk_tokens / chunk.chunks[0].tokens
    return float(np.clip(added_us / served.busy_us, 0.0, 1.0))


# Service-level objectives: bounds on the E2E, TTFT or TPOT of requests, or on the time between tokens, on the mean or a percentile of them.

OPTION = "--slo"
FORM = re.compile(r"\s*(e2e|ttft|tpot|itl)_(mean|p(\d{1,2}(?:\.\d+)?))\s*<?=\s*(.+)", re.IGNORECASE)
EXAMPLE = "write for example ttft_p90=1s, tpot_mean=50ms or e2e_p99=20s"
OF_TOKENS = "itl"
"""The time between two tokens of an answer, which is bounded over all tokens."""
FIGURES = ("e2e", "ttft", "tpot", OF_TOKENS)
"""Times that may be bounded: of a request, and between its tokens."""
USUAL = tuple(f"{figure}_{of}" for figure in FIGURES for of in ("mean", "p50", "p90", "p95", "p99"))
"""Objectives that a misspelt one may stand for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceObjective:
    """A bound on one time of the requests."""

    figure: str
    """One of FIGURES."""
    percentile: float | None
    """Percentile over requests, above 0 and below 100; None for the mean."""
    limit_us: float

    @property
    def name(self) -> str:
        """`ttft_p90`."""
        return f"{self.figure}_{'mean' if self.percentile is None else f'p{self.percentile:g}'}"

    @property
    def title(self) -> str:
        """`TTFT p90`."""
        figure, _, of = self.name.partition("_")
        return f"{figure.upper()} {of}"

    def value_us(self, times: RequestTimes) -> float:
        """The time that is bounded."""
        if self.figure == OF_TOKENS:
            return times.gaps.mean_us if self.percentile is None else times.gaps.percentile_us(self.percentile)
        values = times.counted(self.figure)
        return float(values.mean() if self.percentile is None else np.percentile(values, self.percentile))

    def holds(self, times: RequestTimes) -> bool:
        return self.value_us(times) <= self.limit_us


def met_share(objectives: Sequence[ServiceObjective], times: RequestTimes) -> float:
    """Share of requests that meet every limit on a time of theirs; one between tokens is met, or not, by tokens."""
    met = np.ones(len(times.e2e), dtype=bool)
    for one in objectives:
        if one.figure != OF_TOKENS:
            met &= getattr(times, one.figure) <= one.limit_us
    return float(met.mean())


def parse_objectives(texts: Sequence[str]) -> tuple[ServiceObjective, ...]:
    """The objectives of texts such as `ttft_p90=1s` or `tpot_p90<=50ms`. UserError with a line for each that is none,
    and for a time that is bounded twice."""
    found: list[ServiceObjective] = []
    with Checks() as checks:
        for text in texts:
            with checks.one():
                one = _objective(text)
                if one.name in (other.name for other in found):
                    raise UserError(f"{OPTION}: {one.name} is given twice; give it once")
                found.append(one)
    return tuple(found)


def _objective(text: str) -> ServiceObjective:
    matched = FORM.fullmatch(text)
    percentile = float(matched[3]) if matched and matched[3] else None
    if matched is None or percentile == 0:
        name = text.partition("=")[0].rstrip(" <")
        near = "" if name in USUAL else did_you_mean(name, USUAL)
        raise UserError(f"{OPTION}: {shown(text)} is not an objective{near}; {EXAMPLE}")
    limit_us = duration_us(matched[4])
    if limit_us is None:
        problem = f"{shown(matched[4])} is not a time above 0 with its unit"
        raise UserError(f"{OPTION}: {shown(text)}: {problem}; write for example 1s, 50ms or 200us")
    return ServiceObjective(figure=matched[1].lower(), percentile=percentile, limit_us=limit_us)


# The highest rate of requests at which something holds, by bisection: objectives, or first tokens that are not much slower than at
# a low rate.

SLOWER = 3.0
"""Mean TTFT over the mean TTFT of a low rate, at which the published formula calls a server saturated."""
LOW, BEYOND = 0.05, 1.5
"""Shares of the capacity between which first tokens become slow: a low rate, and a queue that surely grows."""
OF_SLOW_TOKENS, OF_OBJECTIVES = HALVINGS + 1, 3 * (HALVINGS + 2)
"""Simulations of each search, at most."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServersForLoad:
    """Numbers of equal servers that carry a rate."""

    least: int | None = None
    """None for a load without a rate."""
    at_low: int | None = None
    """Those that do so even at the lower bound; None where no number of them does."""

    @property
    def with_spare(self) -> int | None:
        """Those that do so even where one fails."""
        return None if self.least is None else self.least + 1


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectivesRate:
    """The highest rate of all replicas at which every objective holds and the queue does not grow."""

    objectives: tuple[ServiceObjective, ...]
    rate: Interval
    binding: tuple[ServiceObjective, ...]
    """Those that fail just above the rate; () where the queue grows first."""
    outcome: LoadOutcome
    """The load at that rate."""
    met_share: float
    """Share of the requests there that meet every limit."""

    @property
    def goodput_per_s(self) -> float:
        """Requests per second that meet every limit."""
        return self.rate.median * self.met_share

    def servers_for(self, rate: float) -> ServersForLoad:
        """Servers like this one that carry a rate; none for a load without one."""
        if not rate:
            return ServersForLoad()
        at_low = ceil(rate / self.rate.low) if self.rate.low else None
        return ServersForLoad(least=ceil(rate / self.rate.median), at_low=at_low)


def rate_of_slow_first_tokens(server: LoadedServer, capacity: float) -> float:
    """The rate at which the mean time to the first token passes SLOWER times its value at a low rate."""

    def ttft_us(rate: float) -> float:
        return float(server.times_at(rate).ttft.mean())

    limit = SLOWER * ttft_us(LOW * capacity)
    found = bisected(lambda rate: ttft_us(rate) < limit, LOW * capacity, BEYOND * capacity)
    return (found.holds + found.fails) / 2


def rate_of_objectives(
    server: LoadedServer, objectives: Sequence[ServiceObjective], capacity: Interval
) -> ObjectivesRate:
    """The highest rate at which the objectives hold, with its interval: slower steps hold at lower rates. InfeasibleError where they do
    not even hold for a request by itself."""
    fast, middle, slow = server.tables

    def edge(tables: Tables, most: float) -> Bracket:
        def holds(rate: float) -> bool:
            times = server.times_at(rate, tables)
            return all(one.holds(times) for one in objectives)

        if holds(most):
            return Bracket(holds=most, fails=most)
        return bisected(holds, LOW * most, most) if holds(LOW * most) else Bracket(holds=0.0, fails=LOW * most)

    found = edge(middle, capacity.median)
    times = server.times_at(found.fails)
    failing = tuple(one for one in objectives if not one.holds(times))
    if not found.holds:
        raise InfeasibleError(_not_even_alone(failing, times, found.fails))
    rate = Interval(
        median=found.holds,
        low=min(found.holds, edge(slow, capacity.low).holds),
        high=max(found.holds, edge(fast, capacity.high).holds),
    )
    (outcome,) = server.at_rates([found.holds])
    return ObjectivesRate(
        objectives=tuple(objectives),
        rate=rate,
        binding=failing if found.fails > found.holds else (),
        outcome=outcome,
        met_share=met_share(objectives, server.times_at(found.holds)),
    )


def _not_even_alone(failing: Sequence[ServiceObjective], times: RequestTimes, rate: float) -> str:
    excess = ", ".join(
        f"{one.name} is {duration(one.value_us(times))}, above {duration(one.limit_us)}" for one in failing
    )
    return (
        f"--slo: no rate keeps it: at {significant(rate)} requests/s, where requests hardly meet, {excess}; allow more, shorten the requests, or "
        f"spread the model over more GPUs (placement.tp)"
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Questions:
    """Questions on a server other than its latencies."""

    rates: tuple[float, ...] = ()
    """Rates of requests in place of the config's load."""
    capacity: bool = False
    """The rate beyond which the queue grows."""
    slow_first_tokens: bool = False
    """The rate at which first tokens become slow, by which the published formula calls a server saturated."""
    objectives: tuple[ServiceObjective, ...] = ()
    price: Price | None = None

    @property
    def tpot_us(self) -> float:
        """The least time per token that an objective bounds; infinite without one."""
        return min((one.limit_us for one in self.objectives if one.figure == "tpot"), default=inf)

    def requests(self, server: LoadedServer, capacity: float = 0.0) -> int:
        """Requests that the answer simulates, at most; before the capacity is known, by the rate of the load."""
        load, tables = server.run.load, len(server.tables)
        rates = self.rates or (load.rate,)
        of_loads = sum(round(load.duration_s * rate / server.shares) if rate else load.requests for rate in rates)
        searches = self.slow_first_tokens * OF_SLOW_TOKENS + bool(self.objectives) * OF_OBJECTIVES
        of_searches = searches and searches * server.requests_at(capacity or max(rates))
        of_capacity = server.capacity_requests if self.needs_capacity else 0
        return tables * of_loads + of_capacity + of_searches

    @property
    def needs_capacity(self) -> bool:
        """Whether the capacity is a question, or bounds another one."""
        return self.capacity or self.slow_first_tokens or bool(self.objectives)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ServerAnswer:
    """The findings; None for a question that was not asked."""

    server: LoadedServer
    outcomes: tuple[LoadOutcome, ...]
    """The config's load, or one for each rate."""
    costs: tuple[TokenCost, ...]
    """Costs of these loads; () without a price."""
    capacity: Interval | None
    capacity_cost: TokenCost | None
    slow_first_tokens_per_s: float | None
    """The rate at which the mean time to the first token passes three times its value at a low rate."""
    kept: ObjectivesRate | None
    """The rate at which the objectives hold."""
    kept_cost: TokenCost | None
    met_shares: tuple[float, ...]
    """Share of the requests of each load that meet every limit; () without objectives."""

    @property
    def goodputs_per_s(self) -> tuple[float, ...]:
        """Requests per second of each load that meet every limit."""
        return tuple(share * one.answered.median for share, one in zip(self.met_shares, self.outcomes, strict=False))


def answer(
    server: LoadedServer, questions: Questions, progress: Callable[[int, int], None] = lambda done, of: None
) -> ServerAnswer:
    """The answer to all questions. `progress` is called with how many requests have been simulated, of how many at most.
    InfeasibleError where no rate keeps the objectives."""
    done, most = 0, questions.requests(server)

    def report(requests: int) -> None:
        nonlocal done
        done += requests
        progress(done, max(done, most))

    server.on_served = report
    outcomes = tuple(server.at_rates(questions.rates) if questions.rates else [server.as_configured()])
    capacity = slow = kept = capacity_cost = kept_cost = None
    if questions.needs_capacity:
        capacity = server.capacity()
        most = questions.requests(server, capacity.median)
        if questions.slow_first_tokens:
            slow = rate_of_slow_first_tokens(server, capacity.median)
        if questions.objectives:
            kept = rate_of_objectives(server, questions.objectives, capacity)
    price = questions.price
    if price and capacity and questions.capacity:
        (there,) = server.at_rates([capacity.median])
        capacity_cost = cost_at_rate(server, there, capacity, price)
    if price and kept:
        kept_cost = cost_at_rate(server, kept.outcome, kept.rate, price)
    progress(done, done)
    return ServerAnswer(
        server=server,
        outcomes=outcomes,
        costs=tuple(cost_of_load(server, one, price) for one in outcomes) if price else (),
        capacity=capacity if questions.capacity else None,
        capacity_cost=capacity_cost,
        slow_first_tokens_per_s=slow,
        kept=kept,
        kept_cost=kept_cost,
        met_shares=tuple(
            met_share(questions.objectives, times_of(one.served, server.client))
            for one in outcomes
            if questions.objectives
        ),
    )


def objectives_text(objectives: Sequence[ServiceObjective]) -> str:
    """`TTFT p90 ≤ 1 s and TPOT p90 ≤ 50 ms`."""
    return " and ".join(f"{one.title} ≤ {duration(one.limit_us)}" for one in objectives)


def binding_text(found: ObjectivesRate) -> str:
    """The obstacle to a higher rate, in words."""
    if not found.binding:
        return "the queue grows"
    return f"{objectives_text(found.binding)} {'fails' if len(found.binding) == 1 else 'fail'}"


def questions_of(
    slo: Sequence[str] = (), price: str | None = None, *, rates: Sequence[float] = (), find_capacity: bool = False
) -> Questions:
    """The questions; UserError with a line for each text that is not an objective, and for a rate that is not above 0 and finite."""
    paid = None
    with Checks() as checks:
        with checks.one():
            objectives = parse_objectives(slo)
        with checks.one():
            paid = parse_price(price) if price else None
        with checks.one():
            if wrong := [rate for rate in rates if not (rate > 0 and isfinite(rate))]:
                raise UserError(
                    f"rates: {as_given(wrong[0])} is not a rate; give requests per second above 0 and finite"
                )
    return Questions(
        objectives=objectives,
        price=paid,
        rates=tuple(rates),
        capacity=find_capacity,
        slow_first_tokens=find_capacity,
    )


# The answer of a server to a load, or to several.


def serving_answer(
    config: Config,
    overrides: Sequence[str] = (),
    *,
    find_capacity: bool = False,
    rates: Sequence[float] = (),
    slo: Sequence[str] = (),
    price: str | None = None,
    model: str = "",
    coefficients: Path | str | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> ServerAnswer:
    """A server under the load of a serving config, or under each of `rates`, as `predict serving` reports it.

    `.outcomes[0].latency.ttft.mean_us`, `.capacity` (with `find_capacity`), `.kept.rate` (with `slo`, such as
    `ttft_p90=1s`), `.costs` (with `price`, such as `2.5/gpu-h`). `model` is the model of the step, and `coefficients` a file
    that `predict serving-fit` wrote; `progress` is called with how many requests have been simulated, of how many at most.
    ConfigError and UserError list every fault of the input; InfeasibleError where the weights do not fit, or no rate
    keeps the objectives.
    """
    with Checks() as checks:
        with checks.one():
            questions = questions_of(slo, price, rates=rates, find_capacity=find_capacity)
        with checks.one():
            weights = chosen_coefficients(model, None if coefficients is None else Path(coefficients))
        with checks.one():
            run = load_serving(config, overrides)
    return answer(LoadedServer(run, Stepper(run.server, weights), questions.tpot_us), questions, progress)
