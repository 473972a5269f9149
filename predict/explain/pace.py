"""Paces: what a traced step tells of times, from the particular to the general: of calls, of headings, and of all work.

A call that the trace shows costs about what it cost there; one of another shape goes at the pace of its heading, and one of a heading
that the trace lacks at the pace of all work. Each is a mean of what was measured and of the more general pace, by how sure both are
(Gaussian, in log time). So a heading of a hundredth of the step, whose measured time may be that of its neighbours, does not set the pace
of a tenth of another step. What is no call (pauses, what parts leave of a whole) counts to the work that all calls of a ledger stand for,
since one ledger has as a rest what the other has under its calls.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from predict.explain.ledger import measured_calls
from predict.explain.measured import MeasuredStep
from predict.explain.naming import heading_of
from predict.explain.predicted import SAME, PredictedStep, direction
from predict.explain.timeline import DATA, IDLE
from predict.step.itemised.breakdown import BUBBLE, DP, P2P, STRAGGLERS
from predict.step.itemised.items import Item
from sampling.call import Call
from sampling.collectives.kinds import Collective

REPLAYED, MODELLED = "replayed", "modelled"
REPEATS = 0.05
"""Standard deviation in log time of a measured time about the one of another step: repeats of steps on one machine differ by 2 to 6 %."""
WAITING = (BUBBLE, STRAGGLERS, IDLE, DATA, P2P, DP, "ep", "cp")
"""Headings of what is no work of a rank: messages, and waiting."""
MISNAMED_HEADING, MISNAMED_CALL = 0.01, 0.002
"""Shares of the step that may stand under another heading, or another call, than in the prediction. Assumed: fused and split operators."""
SPLIT = 0.3
"""Standard deviation in log time of how a whole layer's time falls on its operators, in one ledger beside the other: caches, first
touches of memory and pauses are one operator's when it is timed alone, and its neighbour's in a step. Assumed."""
MESSAGES = 0.2
"""Standard deviation in log time of messages about their prediction, and of one step's about another's. Assumed."""
ALL = 0.3
"""Standard deviation in log time of the pace of all work about 1: clocks, threads and neighbours of the machine. Assumed."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """A measured over a predicted time, in log time, with the standard deviations of the measurement, and of such times about the more
    general pace."""

    log: float
    noise: float
    spread: float

    def towards(self, general: float) -> float:
        """The pace between the measured and the more general one."""
        share = self.spread**2 / (self.spread**2 + self.noise**2)
        return general + share * (self.log - general)


@dataclass(frozen=True, kw_only=True, slots=True)
class TraceFactors:
    """Factors on predicted times: of calls in one direction, of headings, of all others, and one more of everything alike."""

    calls: Mapping[tuple[Call, str], float]
    headings: Mapping[str, float]
    others: float
    common: float = 1.0
    scaled: Mapping[str, float] = field(default_factory=dict)
    """Heading → factor on its time that a question asks for."""
    links: float = 1.0
    """Factor on the time of messages that a question asks for."""

    def of(self, item: Item, *, of_whole: bool = False) -> tuple[float, str]:
        """The factor of an item, and whether it is replayed or modelled. A part of a sampled whole that the trace does not show goes at the
        pace of all: the whole is surely known, and its parts are not."""
        heading = SAME.get(item.heading, item.heading)
        is_message = isinstance(item.call, Collective) or heading == P2P
        asked = self.scaled.get(heading, 1.0) * (self.links if is_message else 1.0)
        if item.call is not None and item.phase is not None:
            own = self.calls.get((item.call, direction(item.phase)))
            if own is not None:
                return asked * self.common * own, REPLAYED
        modelled = self.others if of_whole else self.headings.get(heading, self.others)
        return asked * self.common * modelled, MODELLED


def paces(predicted: PredictedStep, measured: MeasuredStep) -> TraceFactors:
    """The factors by a trace, whose times are those without the profiler where the trace says what it cost."""
    unslowed = (measured.untraced_us or measured.step_us) / measured.step_us
    names = {heading_of(call) for call, _ in predicted.calls} & set(predicted.headings)
    seen = measured.headings
    expected_us, seen_us = (sum(max(0.0, of.get(name, 0.0)) for name in names) for of in (predicted.headings, seen))
    if not expected_us or not seen_us:
        return TraceFactors(calls={}, headings={}, others=1.0)
    whole_us = expected_us + _rests(predicted.headings, names)
    whole_seen_us = seen_us + _rests(seen, names)
    of_work = math.log(unslowed * whole_seen_us / whole_us)
    of_all = Evidence(of_work, REPEATS, ALL).towards(0.0)
    shown = _Shown(predicted=predicted, step_us=measured.step_us, shift=of_work - math.log(seen_us / expected_us))
    logs = {}
    for name in sorted(names):
        if (time_us := seen.get(name, 0.0)) > 0 and predicted.headings[name] > 0:
            evidence = shown.evidence(predicted.headings[name], time_us, name, misnamed=MISNAMED_HEADING, noise=SPLIT)
            logs[name] = evidence.towards(of_all)
    calls = {}
    for key, (_, time_us) in measured_calls(measured).items():
        _, of_call_us = predicted.calls.get(key, (0.0, 0.0))
        if of_call_us > 0 and time_us > 0 and (name := heading_of(key[0])) in logs:
            evidence = shown.evidence(of_call_us, time_us, name, misnamed=MISNAMED_CALL, noise=REPEATS)
            calls[key] = math.exp(evidence.towards(logs[name]))
    logs |= {name: evidence.towards(of_all) for name, evidence in _of_messages(predicted, measured, unslowed)}
    return TraceFactors(
        calls=calls, headings={name: math.exp(log) for name, log in logs.items()}, others=math.exp(of_all)
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Shown:
    """The measure of single times of a trace; `shift` is the pace of work with its rests over that of its calls alone."""

    predicted: PredictedStep
    step_us: float
    shift: float

    def evidence(self, expected_us: float, time_us: float, name: str, *, misnamed: float, noise: float) -> Evidence:
        """The evidence of a time under a heading."""
        noise = math.hypot(noise, misnamed * self.step_us / max(expected_us, time_us))
        return Evidence(self.shift + math.log(time_us / expected_us), noise, self.predicted.doubts[name])


def _rests(headings: Mapping[str, float], names: Collection[str]) -> float:
    """Time of work that is no call: pauses, what parts leave of a whole, and the messages of tensor-parallel layers, which are sampled with
    them."""
    beside = (*names, *WAITING)
    return sum(max(0.0, time_us) for name, time_us in headings.items() if name not in beside)


def _of_messages(predicted: PredictedStep, measured: MeasuredStep, unslowed: float) -> Iterator[tuple[str, Evidence]]:
    """The evidence of messages, where more than one rank tells their transfer from waiting."""
    for name, expected_us in predicted.messages_us.items():
        messages = measured.messages(name) if len(measured.ranks) > 1 else None
        if messages and messages.transfer_us and expected_us:
            misnamed = MISNAMED_HEADING * measured.step_us / max(expected_us, messages.transfer_us)
            log = math.log(unslowed * messages.transfer_us / expected_us)
            yield name, Evidence(log, math.hypot(MESSAGES, misnamed), MESSAGES)
