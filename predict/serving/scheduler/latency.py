"""What the clients of a server see: times to the first token, per further token and to the last one, and how much is served."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from predict.serving.batch import Floats
from predict.serving.coefficients import Client
from predict.serving.scheduler.simulate import Served
from predict.serving.scheduler.traffic import SECOND_US

PERCENTILES = (50, 90, 99)


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """Mean and percentiles in µs over requests."""

    mean_us: float
    percentiles_us: Mapping[int, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Latency:
    """One load on one server, served."""

    e2e: Spread
    ttft: Spread
    tpot: Spread
    """(E2E − TTFT) / (output − 1), of requests with more than one output token."""
    requests_per_s: float
    """Completions per second of the whole run."""
    output_tokens_per_s: float
    mean_waiting: float
    """Requests that wait to be scheduled, on average while they arrive."""
    queue_growth_per_s: float
    """Growth of their number per second, as a straight line through the last two thirds of the arrivals."""


def latency_of(served: Served, client: Client) -> Latency:
    """The times of all requests, with the client's own; of a closed loop, those of the requests while it is full."""
    traffic = served.traffic
    judged = _judged(len(traffic), traffic.in_flight)
    further = traffic.output[judged] - 1
    ttft = (served.first_us - traffic.arrival_us)[judged] + client.first_token_us
    after = (
        (served.last_us - served.first_us)[judged]
        + client.last_token_us * (further > 0)
        + client.per_token_us * further
    )
    e2e = ttft + after
    end_us = float(served.last_us.max() - traffic.arrival_us[0])
    waiting, growth = _queue(served)
    return Latency(
        e2e=_spread(e2e),
        ttft=_spread(ttft),
        tpot=_spread((after / np.maximum(further, 1))[further > 0]) if (further > 0).any() else _spread(0.0 * ttft),
        requests_per_s=len(traffic) / end_us * SECOND_US,
        output_tokens_per_s=float(traffic.output.sum()) / end_us * SECOND_US,
        mean_waiting=waiting,
        queue_growth_per_s=growth,
    )


def _judged(requests: int, in_flight: int) -> slice:
    """Requests between those that a closed loop starts with and those that end as it drains, as far as there are such."""
    if requests > 2 * in_flight:
        return slice(in_flight, requests - in_flight)
    return slice(in_flight if in_flight < requests else 0, None)


def _spread(times_us: Floats) -> Spread:
    percentiles = np.percentile(times_us, PERCENTILES)
    return Spread(
        mean_us=float(times_us.mean()), percentiles_us=dict(zip(PERCENTILES, map(float, percentiles), strict=True))
    )


def _queue(served: Served) -> tuple[float, float]:
    """Mean number of requests that wait at an arrival, and its growth per second."""
    arrival = served.traffic.arrival_us
    started = np.searchsorted(np.sort(served.start_us), arrival, side="right")
    waiting = np.maximum(np.arange(len(arrival)) - started, 0)
    later = slice(len(arrival) // 3, None)
    times_s = arrival[later] / SECOND_US
    if len(times_s) < 2 or times_s[-1] == times_s[0]:
        return float(waiting.mean()), 0.0
    slope = np.polyfit(times_s - times_s[0], waiting[later], 1)[0]
    return float(waiting.mean()), float(slope)
