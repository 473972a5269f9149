"""Terms of a replay: the ledger of the asked step, each time by its origin, and the interval that the origins leave."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from predict.explain.naming import direction
from predict.explain.predicted import ROUNDING, name_of
from predict.explain.replay.pace import CARRIED, MODELLED, REPEATS, REPLAYED, TraceFactors
from predict.explain.replay.prices import ReplayedPrices
from predict.ledger.work import StepItem, step_items
from predict.run.calibration.priors import NINETY
from predict.step.itemised.breakdown import BUBBLE, DP, OVERHEAD, P2P, STRAGGLERS
from predict.step.itemised.items import HOST, TP
from predict.step.prediction import Prediction

REST = "rest of the trace"
"""Heading of what the traced step takes beyond its calls and schedule: standing still, waiting at its end, and what no term explains."""
FOLLOWS = "follows"
"""Origin of waiting, which the schedule of all other times makes."""
DOUBTS: Mapping[str, float] = {REPLAYED: 0.0, MODELLED: 0.08, CARRIED: 0.3}
"""Standard deviation in log time of what has an origin, beside that of repeats. Assumed: operators of unseen shapes are 11 %
off each, which partly averages out."""
MODELLED_MESSAGES = 0.5
"""That of messages of which the trace shows none. Assumed: half to twice the time, at 90 %."""
MESSAGES = (DP, TP, P2P, "ep", "cp")


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayedTerm:
    """One heading of a replayed step: µs a step of the mean pipeline rank, by origin."""

    name: str
    by_origin_us: Mapping[str, float]

    @property
    def time_us(self) -> float:
        return sum(self.by_origin_us.values())


def terms_of(replayed: Prediction, carried_us: float) -> tuple[ReplayedTerm, ...]:
    """The terms of a step at replayed prices, which add up to it and what is carried over, the longest first."""
    assert isinstance(replayed.prices, ReplayedPrices)
    factors = replayed.prices.factors
    found: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for each in step_items(replayed):
        for heading, origin, time_us in _origins(each, factors):
            found[heading][origin] += time_us
    found[REST][CARRIED] += carried_us
    for name in (STRAGGLERS, OVERHEAD):
        found[name][MODELLED] += replayed.breakdown_us.get(name, 0.0)
    waited_us = replayed.median_us + carried_us - sum(sum(each.values()) for each in found.values())
    found[BUBBLE if replayed.run.plan.pp > 1 else HOST][FOLLOWS] += waited_us
    least_us = ROUNDING * replayed.median_us
    terms = [
        ReplayedTerm(name=name, by_origin_us=kept)
        for name, by_origin in found.items()
        if (kept := {origin: time_us for origin, time_us in by_origin.items() if abs(time_us) > least_us})
    ]
    return tuple(sorted(terms, key=lambda each: -each.time_us))


def _origins(each: StepItem, factors: TraceFactors) -> Iterator[tuple[str, str, float]]:
    """(heading, origin, µs) of an item; the host's time is taken out of operators and of layers' messages."""
    item, heading = each.item, name_of(each)
    if item.call is None or item.phase is None:
        yield heading, MODELLED, each.time_us
    elif each.is_message:
        _, origin = factors.of_messages(heading)
        own_us = min(each.time_us, each.alone_us) if heading == TP else each.time_us
        yield heading, origin, own_us
        yield HOST, MODELLED, each.time_us - own_us
    else:
        host_us = min(each.time_us, each.calls * factors.host_beside_us(item.call))
        _, origin = factors.of(item.call, direction(item.phase))
        yield heading, origin, each.time_us - host_us
        yield HOST, CARRIED, host_us


def half_width(terms: Sequence[ReplayedTerm], *, same_plan: bool) -> float:
    """Half-width in log time, at 90 %, of a replayed step. Times of one kind err together, and each moves the step by its share of all but
    waiting; what is carried over is as sure as a repeat in the traced plan itself."""
    by_doubt: dict[float, float] = defaultdict(float)
    for term in terms:
        for origin, time_us in term.by_origin_us.items():
            if origin != FOLLOWS and not (same_plan and origin == CARRIED):
                by_doubt[_doubt(term.name, origin)] += time_us
    work_us = sum(time_us for term in terms for origin, time_us in term.by_origin_us.items() if origin != FOLLOWS)
    return NINETY * math.hypot(REPEATS, *(doubt * time_us / work_us for doubt, time_us in by_doubt.items()))


def _doubt(name: str, origin: str) -> float:
    return MODELLED_MESSAGES if origin == MODELLED and name in MESSAGES else DOUBTS[origin]
