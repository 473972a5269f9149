"""Terms of a replay: the ledger of the asked step, each time by its origin, and the interval that the origins leave."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from predict.explain.predicted import ROUNDING, name_of
from predict.explain.replay.pace import CARRIED, MODELLED, REPEATS, TraceFactors
from predict.explain.replay.prices import ReplayedPrices
from predict.explain.trace.messages import COMMUNICATION
from predict.explain.trace.naming import direction
from predict.interval import width_of_step
from predict.ledger.work import StepItem, step_items
from predict.run.calibration.priors import NINETY
from predict.step.breakdown import BUBBLE, HOST, OVERHEAD, STRAGGLERS, TP
from predict.step.prediction import Prediction

REST = "rest of the trace"
"""Heading of what the traced step takes beyond its calls and schedule: standing still, waiting at its end, and what no term explains."""
FOLLOWS = "follows"
"""Origin of waiting, which the schedule of all other times makes."""
OPERATORS = 0.08
"""Standard deviation in log time of modelled operators. Assumed: those of unseen shapes are 11 % off each, which partly averages out."""
HOSTS = 0.3
"""That of the host's time beside operators of another run. Assumed."""
RESTS = 1 / NINETY
"""That of the rest of the trace, as a share of what is carried over to another run, which may have none of it, or twice as much."""
UNSEEN_MESSAGES = 0.5
"""That of messages of which the trace shows none. Assumed: half to twice the time, at 90 %."""

TWO_RUNS = math.sqrt(2)
"""Standard deviation of the difference of two runs, over that of one about the machine's mean pace."""


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
        # a split backward takes the weights' half out of the whole, as calls below 0
        host_us = math.copysign(
            min(abs(each.time_us), abs(each.calls) * factors.host_beside_us(item.call)), each.time_us
        )
        _, origin = factors.of(item.call, direction(item.phase))
        yield heading, origin, each.time_us - host_us
        yield HOST, CARRIED, host_us


def half_width(terms: Sequence[ReplayedTerm], *, same_run: bool, pace_doubt: float, spread: float) -> float:
    """Half-width in log time, at 90 %, of a replayed step: repeats, and beside them each kind of doubtful time, whose errors go together and
    move the step by that time's share of all but waiting. In the traced run what is carried over is as sure as a repeat. `pace_doubt` is the
    standard deviation in log time of the pace that all modelled operators share, `spread` that of the traced run's steps about one another,
    by which a drifting machine moves the asked run too."""
    spent = [(term.name, origin, time_us) for term in terms for origin, time_us in term.by_origin_us.items()]
    shifts_us: dict[str, float] = defaultdict(float)
    for name, origin, time_us in spent:
        for kind, doubt in _doubts(name, origin, same_run=same_run, pace_doubt=pace_doubt):
            shifts_us[kind] += doubt * abs(time_us)  # a rest below 0 is as doubtful as one above
    work_us = sum(time_us for _, origin, time_us in spent if origin != FOLLOWS)
    return NINETY * width_of_step(
        max(REPEATS, TWO_RUNS * spread), *(shift_us / work_us for shift_us in shifts_us.values())
    )


def _doubts(name: str, origin: str, *, same_run: bool, pace_doubt: float) -> Iterator[tuple[str, float]]:
    """(kind of error, standard deviation in log time) of a term's time of an origin, beside repeats."""
    if origin == MODELLED and name in COMMUNICATION:
        yield "messages", UNSEEN_MESSAGES
    elif origin == MODELLED:
        yield "operators", OPERATORS
        yield "pace", pace_doubt
    elif origin == CARRIED and not same_run:
        yield ("rest", RESTS) if name == REST else ("host", HOSTS)
