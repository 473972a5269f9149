"""Latencies that the clients of a server see: times to the first token, per further token and to the last one, and how much is served."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from predict.serving.batch import Floats
from predict.serving.coefficients import Client
from predict.serving.scheduler.simulate import Served
from sampling.units import SECOND_US

PERCENTILES = (50, 90, 99)
WATCHED = 2 / 3
"""Share of the arrivals, the last ones, by which the growth of a queue is judged."""


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
    """Completions per second, as `_completions_per_s` counts them."""
    output_tokens_per_s: float
    mean_waiting: float
    """Requests that wait to be scheduled, on average while they arrive."""
    queue_growth_per_s: float
    """Growth of their number per second, as a straight line through the last WATCHED of the arrivals."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RequestTimes:
    """The times of each request that counts, in µs, with the client's own."""

    e2e: Floats
    ttft: Floats
    tpot: Floats
    """0 for a request with one output token, which has none."""
    has_tpot: NDArray[np.bool_]

    def counted(self, figure: str) -> Floats:
        """The values of `e2e`, `ttft` or `tpot` over the requests that have one; zeros where none has."""
        values: Floats = getattr(self, figure)
        return values[self.has_tpot] if figure == "tpot" and self.has_tpot.any() else values


def times_of(served: Served, client: Client) -> RequestTimes:
    """The times of all requests; of a closed loop, those of the requests while it is full."""
    traffic = served.traffic
    judged = _judged_of(served)
    further = traffic.output[judged] - 1
    ttft = (served.first_us - traffic.arrival_us)[judged] + client.first_token_us
    after = (
        (served.last_us - served.first_us)[judged]
        + client.last_token_us * (further > 0)
        + client.per_token_us * further
    )
    return RequestTimes(e2e=ttft + after, ttft=ttft, tpot=after / np.maximum(further, 1), has_tpot=further > 0)


def latency_of(served: Served, client: Client) -> Latency:
    """Mean and percentiles of the times, and what is served per second."""
    times, rate = times_of(served, client), _completions_per_s(served)
    waiting, growth = _queue(served)
    return Latency(
        e2e=_spread(times.counted("e2e")),
        ttft=_spread(times.counted("ttft")),
        tpot=_spread(times.counted("tpot")),
        requests_per_s=rate,
        output_tokens_per_s=rate * float(served.traffic.output[_judged_of(served)].mean()),
        mean_waiting=waiting,
        queue_growth_per_s=growth,
    )


def _completions_per_s(served: Served) -> float:
    """Completions per second from the first one to the last, so that a load of finite length counts neither its start nor its drain: below
    saturation that is the rate of arrivals. Of a closed loop, those while it is full; of requests that all arrive at once, and of a single
    one, all of them, from their arrival on."""
    ends = np.sort(served.last_us)[_judged_of(served)]
    arrival = served.traffic.arrival_us
    if arrival[0] == arrival[-1] or ends[0] == ends[-1]:
        return len(arrival) / float(served.last_us.max() - arrival[0]) * SECOND_US
    return (len(ends) - 1) / float(ends[-1] - ends[0]) * SECOND_US


def _judged_of(served: Served) -> slice:
    return _judged(len(served.traffic), served.traffic.in_flight)


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
    later = slice(round((1 - WATCHED) * len(arrival)), None)
    times_s = arrival[later] / SECOND_US
    if len(times_s) < 2 or times_s[-1] == times_s[0]:
        return float(waiting.mean()), 0.0
    slope = np.polyfit(times_s - times_s[0], waiting[later], 1)[0]
    return float(waiting.mean()), float(slope)
