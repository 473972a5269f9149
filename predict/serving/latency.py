"""Latencies that the clients of a server see: times to the first token, per further token and to the last one, and how much is served."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from predict.serving.coefficients import Client
from predict.serving.simulate import Served
from predict.serving.token_gaps import TokenGaps
from predict.serving.traffic import ENDED_BY_THEN, Traffic
from regressors.features.arrays import Floats, Ints
from sampling.units import SECOND_US

PERCENTILES = (50, 90, 99)
WATCHED = 2 / 3
"""Share of the arrivals, the last ones, by which the growth of a queue is judged."""
LEAST_ROUNDS = 2
"""Rounds of requests that an overloaded engine must have ended for its completions to be counted by rounds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """Mean and percentiles in µs, over requests where nothing else is said."""

    mean_us: float
    percentiles_us: Mapping[int, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Latency:
    """One load on one server, served."""

    e2e: Spread
    ttft: Spread
    tpot: Spread
    """(E2E − TTFT) / (output − 1), of requests with more than one output token."""
    itl: Spread
    """Time between two tokens of an answer, over tokens."""
    requests_per_s: float
    """Completions per second, of the ends that `_counted_ends` has."""
    output_tokens_per_s: float
    mean_waiting: float
    """Requests that wait to be scheduled, on average over the time in which those that count arrive: their rate times their mean wait."""
    queue_growth_per_s: float
    """Growth of their number per second, as a straight line through the last WATCHED of the arrivals."""
    is_steady: bool
    """Whether about as many conversations end as begin in some part of the load, which all of this is of; else it is of the whole load."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RequestTimes:
    """The times of each request that counts, in µs, with the client's own."""

    e2e: Floats
    ttft: Floats
    tpot: Floats
    """0 for a request with one output token, which has none."""
    has_tpot: NDArray[np.bool_]
    gaps: TokenGaps
    """Times between the tokens of all answers; of conversations, those made while as many end as begin."""

    def counted(self, figure: str) -> Floats:
        """The values of `e2e`, `ttft` or `tpot` over the requests that have one; zeros where none has."""
        values: Floats = getattr(self, figure)
        return values[self.has_tpot] if figure == "tpot" and self.has_tpot.any() else values


def times_of(served: Served, client: Client, first_token_factor: float = 1.0) -> RequestTimes:
    """The times of all requests; of a closed loop that is settled, those of the requests while it is full, and of conversations, those that
    arrive while as many end as begin. The factor is on first tokens."""
    traffic = served.traffic
    judged = _judged_of(served)
    further = traffic.output[judged] - 1
    ttft = first_token_factor * ((served.first_us - traffic.arrival_us)[judged] + client.first_token_us)
    after = (
        (served.last_us - served.first_us)[judged]
        + client.last_token_us * (further > 0)
        + client.per_token_us * further
    )
    return RequestTimes(
        e2e=ttft + after,
        ttft=ttft,
        tpot=after / np.maximum(further, 1),
        has_tpot=further > 0,
        gaps=replace(served.gaps, client_us=client.per_token_us),
    )


def latency_of(served: Served, client: Client, first_token_factor: float = 1.0) -> Latency:
    """Mean and percentiles of the times, and what is served per second."""
    times, rate = times_of(served, client, first_token_factor), _completions_per_s(served)
    return Latency(
        e2e=_spread(times.counted("e2e")),
        ttft=_spread(times.counted("ttft")),
        tpot=_spread(times.counted("tpot")),
        itl=Spread(
            mean_us=times.gaps.mean_us,
            percentiles_us={percent: times.gaps.percentile_us(percent) for percent in PERCENTILES},
        ),
        requests_per_s=rate,
        output_tokens_per_s=rate * float(served.traffic.output[_judged_of(served)].mean()),
        mean_waiting=_mean_waiting(served),
        queue_growth_per_s=_queue_growth_per_s(served),
        is_steady=served.traffic.talk is None or _steady_us(served.traffic) is not None,
    )


def _completions_per_s(served: Served) -> float:
    """Completions per second between the first and the last that count; of requests that all arrive at once, of a loop whose first requests
    do, and of a single one, all of them, from the first arrival on.

    An overloaded engine starts with a full round of requests, which end together, as do those that take their places:
    then it is between the mean end of the first round and of the last, so that a bunch at either edge counts no
    more than the time it took.
    """
    ends, round_of = _counted_ends(served), max(1, round(served.mean_requests))
    traffic, arrival = served.traffic, served.traffic.arrival_us
    if _is_overloaded(served) and len(ends) >= LEAST_ROUNDS * round_of:
        span_us = float(ends[-round_of:].mean() - ends[:round_of].mean())
        return (len(ends) - round_of) / span_us * SECOND_US
    at_once = arrival[0] == arrival[-1] or bool(traffic.in_flight and not traffic.is_settled)
    if at_once or ends[0] == ends[-1]:
        return len(arrival) / float(served.last_us.max() - arrival[0]) * SECOND_US
    return (len(ends) - 1) / float(ends[-1] - ends[0]) * SECOND_US


def _counted_ends(served: Served) -> Floats:
    """The times of the completions that throughput counts, in order. Of a closed loop, those while it is full; of conversations, those
    while as many end as begin; else all, between which the rate below saturation is the rate of arrivals. Where the queue outlasts
    the arrivals, those before the last request starts: without prompts to compute, the engine then drains faster than it can go on."""
    steady = _steady_us(served.traffic)
    if steady:
        ends: Floats = np.sort(served.last_us)
        counted = ends[(ends >= steady[0]) & (ends <= steady[1])]
        return counted if len(counted) > 1 else ends
    ends = np.sort(served.last_us)[_judged_of(served)]
    if not _is_overloaded(served):
        return ends
    before = ends[ends <= served.start_us.max()]
    return before if len(before) and before[-1] > before[0] else ends


def _is_overloaded(served: Served) -> bool:
    """Whether in an open loop the request that starts last waited longer than it is served: the queue outlasts the arrivals."""
    if served.traffic.in_flight:
        return False
    last = int(served.start_us.argmax())
    start = served.start_us[last]
    return bool(start - served.traffic.arrival_us[last] > served.last_us[last] - start)


def _judged_of(served: Served) -> slice | NDArray[np.bool_]:
    traffic = served.traffic
    if steady := _steady_us(traffic):
        judged: NDArray[np.bool_] = (traffic.arrival_us >= steady[0]) & (traffic.arrival_us <= steady[1])
        return judged
    return _judged(len(traffic), traffic.in_flight) if traffic.is_settled else slice(None)


def _steady_us(traffic: Traffic) -> tuple[float, float] | None:
    """µs from which on about as many conversations end as begin, and up to which they begin; None for other requests, and where all begin
    before many end."""
    if traffic.talk is None:
        return None
    begins = _begins_us(traffic.talk, traffic.arrival_us)
    ends = np.zeros(len(begins))
    np.maximum.at(ends, traffic.talk, traffic.arrival_us)
    since = float(begins.min() + np.quantile(ends - begins, ENDED_BY_THEN))
    until = float(begins.max())
    return (since, until) if np.any((traffic.arrival_us >= since) & (traffic.arrival_us <= until)) else None


def _begins_us(talk: Ints, arrival_us: Floats) -> Floats:
    """µs at which each conversation begins."""
    begins = np.full(int(talk.max()) + 1, np.inf)
    np.minimum.at(begins, talk, arrival_us)
    return begins


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


def _mean_waiting(served: Served) -> float:
    """Requests that wait, on average from the first arrival that counts to the last; of requests that all arrive at once, until the last of
    them starts."""
    arrival, start = served.traffic.arrival_us, served.start_us
    counted = arrival[_judged_of(served)]
    since, until = counted[0], counted[-1]
    if since == until:
        until = start.max()
    if since == until:
        return 0.0
    waited = np.minimum(start, until) - np.maximum(arrival, since)
    return float(np.maximum(waited, 0.0).sum() / (until - since))


def _queue_growth_per_s(served: Served) -> float:
    """Growth per second of the number of requests that wait at an arrival; of conversations, while others begin: after that it falls,
    whether or not the server has kept up with them."""
    arrival = served.traffic.arrival_us
    started = np.searchsorted(np.sort(served.start_us), arrival, side="right")
    waiting = np.maximum(np.arange(len(arrival)) - started, 0)
    talk = served.traffic.talk
    if talk is not None:
        counted = _judged_of(served) if _steady_us(served.traffic) else arrival <= _begins_us(talk, arrival).max()
        arrival, waiting = arrival[counted], waiting[counted]
    later = slice(round((1 - WATCHED) * len(arrival)), None)
    times_s = arrival[later] / SECOND_US
    if len(times_s) < 2 or times_s[-1] == times_s[0]:
        return 0.0
    return float(np.polyfit(times_s - times_s[0], waiting[later], 1)[0])
