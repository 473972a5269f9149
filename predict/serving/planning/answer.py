"""The answer on a server: its loads, the rate that it carries, the rate at which objectives hold, and what its tokens cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from predict.interval import Interval
from predict.ledger.training_cost import Price
from predict.serving.planning.cost import TokenCost, cost_at_rate, cost_of_load
from predict.serving.planning.highest_rate import (
    OF_OBJECTIVES,
    OF_SLOW_TOKENS,
    ObjectivesRate,
    rate_of_objectives,
    rate_of_slow_first_tokens,
)
from predict.serving.planning.loaded_server import LoadedServer, Outcome
from predict.serving.planning.objectives import Objective


@dataclass(frozen=True, kw_only=True, slots=True)
class Questions:
    """Questions on a server beside its latencies."""

    rates: tuple[float, ...] = ()
    """Rates of requests in place of the config's load."""
    capacity: bool = False
    """The rate beyond which the queue grows."""
    slow_first_tokens: bool = False
    """The rate at which first tokens become slow, by which the published formula calls a server saturated."""
    objectives: tuple[Objective, ...] = ()
    price: Price | None = None

    @property
    def simulations(self) -> int:
        """Simulations that the answer takes at most, that of the capacity counted as one."""
        searches = self.slow_first_tokens * OF_SLOW_TOKENS + bool(self.objectives) * OF_OBJECTIVES
        return max(1, len(self.rates)) + self.needs_capacity + searches

    @property
    def needs_capacity(self) -> bool:
        """Whether the capacity is asked for, or bounds what is."""
        return self.capacity or self.slow_first_tokens or bool(self.objectives)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Answer:
    """The findings; None for what was not asked."""

    server: LoadedServer
    outcomes: tuple[Outcome, ...]
    """The config's load, or one for each rate."""
    costs: tuple[TokenCost, ...]
    """Costs of these loads; () without a price."""
    capacity: Interval | None
    capacity_cost: TokenCost | None
    slow_first_tokens_per_s: float | None
    """The rate at which the mean time to the first token passes three times that of a low rate."""
    kept: ObjectivesRate | None
    """The rate at which the objectives hold."""
    kept_cost: TokenCost | None


def answer(
    server: LoadedServer, asked: Questions, progress: Callable[[int, int], None] = lambda done, of: None
) -> Answer:
    """The answer to all questions. `progress` is told how many simulations are done, of how many at most. InfeasibleError where no rate keeps
    the objectives."""
    done = 0

    def told() -> None:
        nonlocal done
        done += 1
        progress(done, asked.simulations)

    outcomes = []
    for outcome in server.at_rates(asked.rates) if asked.rates else [server.as_configured()]:
        outcomes.append(outcome)
        told()
    capacity = slow = kept = capacity_cost = kept_cost = None
    if asked.needs_capacity:
        capacity = server.capacity()
        told()
        if asked.slow_first_tokens:
            slow = rate_of_slow_first_tokens(server, capacity.median, told)
        if asked.objectives:
            kept = rate_of_objectives(server, asked.objectives, capacity, told)
    progress(asked.simulations, asked.simulations)
    price = asked.price
    if price and capacity and asked.capacity:
        (there,) = server.at_rates([capacity.median])
        capacity_cost = cost_at_rate(server, there, capacity, price)
    if price and kept:
        kept_cost = cost_at_rate(server, kept.outcome, kept.rate, price)
    return Answer(
        server=server,
        outcomes=tuple(outcomes),
        costs=tuple(cost_of_load(server, one, price) for one in outcomes) if price else (),
        capacity=capacity if asked.capacity else None,
        capacity_cost=capacity_cost,
        slow_first_tokens_per_s=slow,
        kept=kept,
        kept_cost=kept_cost,
    )
