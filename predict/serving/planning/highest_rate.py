"""The highest rate of requests at which something holds, by bisection: objectives, or first tokens that are not much slower than at
a low rate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil

from predict.interval import Interval
from predict.serving.planning.loaded_server import LoadedServer, Outcome
from predict.serving.planning.objectives import Objective, met_share
from predict.serving.scheduler.latency import RequestTimes
from predict.serving.step_table import StepTable
from sampling.errors import InfeasibleError

SLOWER = 3.0
"""Mean TTFT over that of a low rate, at which the published formula calls a server saturated."""
LOW, BEYOND = 0.05, 1.5
"""Shares of the capacity between which first tokens become slow: a low rate, and a queue that surely grows."""
HALVINGS = 8
"""Halvings of a bracket, which leave 0.4 % of it."""
OF_SLOW_TOKENS, OF_OBJECTIVES = HALVINGS + 1, 3 * (HALVINGS + 2)
"""Simulations that each search tells of, at most."""
Simulated = Callable[[], None]
"""Told of each simulation that is done."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bracket:
    """The highest rate that was found to hold, and the lowest that was not; equal where everything up to it holds."""

    holds: float
    fails: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectivesRate:
    """The highest rate of all replicas at which every objective holds and the queue does not grow."""

    objectives: tuple[Objective, ...]
    rate: Interval
    binding: tuple[Objective, ...]
    """Those that fail just above the rate; () where the queue grows first."""
    outcome: Outcome
    """The load at that rate."""
    met_share: float
    """Share of the requests there of which each meets every limit by itself."""

    @property
    def goodput_per_s(self) -> float:
        """Requests per second that meet every limit."""
        return self.rate.median * self.met_share

    def servers_for(self, rate: float) -> tuple[int, int | None]:
        """Servers like this one that carry a rate, and those that do so even at the lower bound; None where none do there."""
        at_least = ceil(rate / self.rate.low) if self.rate.low else None
        return ceil(rate / self.rate.median), at_least


def bisected(holds: Callable[[float], bool], least: float, most: float) -> Bracket:
    """The edge between a rate that holds and one that does not; neither end is tried."""
    for _ in range(HALVINGS):
        middle = (least + most) / 2
        least, most = (middle, most) if holds(middle) else (least, middle)
    return Bracket(holds=least, fails=most)


def rate_of_slow_first_tokens(server: LoadedServer, capacity: float, told: Simulated = lambda: None) -> float:
    """The rate at which the mean time to the first token passes SLOWER times that of a low rate."""

    def ttft_us(rate: float) -> float:
        times = server.times_at(rate)
        told()
        return float(times.ttft.mean())

    limit = SLOWER * ttft_us(LOW * capacity)
    found = bisected(lambda rate: ttft_us(rate) < limit, LOW * capacity, BEYOND * capacity)
    return (found.holds + found.fails) / 2


def rate_of_objectives(
    server: LoadedServer, objectives: Sequence[Objective], capacity: Interval, told: Simulated = lambda: None
) -> ObjectivesRate:
    """The highest rate at which the objectives hold, with its interval: slower steps hold at lower rates. InfeasibleError where they do
    not even hold for a request by itself."""
    fast, middle, slow = server.stepper.tables

    def edge(table: StepTable, most: float) -> Bracket:
        def holds(rate: float) -> bool:
            times = server.times_at(rate, table)
            told()
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


def _not_even_alone(failing: Sequence[Objective], times: RequestTimes, rate: float) -> str:
    told = ", ".join(
        f"{one.name} is {one.value_us(times) / 1e3:.4g} ms, above {one.limit_us / 1e3:.4g} ms" for one in failing
    )
    return (
        f"--slo: no rate keeps it: at {rate:.3g} requests/s, where requests hardly meet, {told}; allow more, shorten the requests, or "
        f"spread the model over more GPUs (placement.tp)"
    )
