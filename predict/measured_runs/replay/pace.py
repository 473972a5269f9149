"""Paces: what a traced step shows of times, from the particular to the general: of calls, of operators by heading and
direction, of messages by kind, and of the host's time around a run of an operator.

A call that the trace shows costs about what it cost there; one of another shape goes at the pace of its heading in its
direction, and one of a heading that the trace lacks at the pace of all operators. Each is a mean of what was measured
and of the more general pace, by how sure both are (Gaussian, in log time). Paces are over the prices of operators by
themselves: of a sampled layer only the whole is known, and its trace shows how that falls on operators that no sample
covers.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from predict.interval import independent_causes
from predict.measured_runs.explain.explanation import measured_calls
from predict.measured_runs.explain.measured import TracedStep
from predict.measured_runs.explain.naming import BACKWARD, FORWARD, Half, heading_of
from predict.measured_runs.explain.predicted import PredictedStep
from predict.measured_runs.explain.timeline import UNNAMED
from predict.run.calibration_terms import NINETY
from predict.step.breakdown import DP, HOST, OPTIMIZER, P2P, TP
from predict.workload.layer import ACCUMULATION
from sampling.call import Call

REPLAYED, MODELLED, CARRIED = "replayed", "modelled", "carried over"
"""Origins of a replay's times: the same call in the trace, a model at the trace's pace, and what the trace has besides calls."""
REPEATS = 0.05
"""Standard deviation in log time of a measured time about the one of another step: repeats of steps on one machine differ by 2 to 6 %."""
MISNAMED = 0.002
"""Share of the step that may stand under another heading, or another call, than in the prediction. Assumed: fused and split operators."""
ALONE = 0.3
"""Standard deviation in log time of an operator within a step about itself alone, in addition to what its price's source leaves open:
caches and first touches of memory. Assumed."""
SENDS, COLLECTIVES = 0.2, 1.0
"""Standard deviations in log time of messages within a step about the same ones alone: compute at the same time, and ranks that come
late, make collectives several times as long. Assumed."""
ALL = 0.3
"""Standard deviation in log time of the pace of all operators about 1: clocks, threads and neighbours of the machine. Assumed."""
SHARED = 0.5
"""Share of a step's pace, in log time, that ranks of other threads on the same machine share: memory and clock, not caches or thread pools.
Assumed."""
SHARED_WIDTH = 0.5
"""Half-width of SHARED at 90 %: they may share nothing of the pace, or all of it."""
BESIDE = (HOST, UNNAMED, ACCUMULATION)
"""Headings of what a rank does besides predicted operators."""


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
    """Factors on the prices of operators by themselves, of messages, and of sampled wholes; the default changes nothing but that layers are
    the sums of their parts."""

    calls: Mapping[tuple[Call, str], float] = field(default_factory=dict)
    """Factors by call and direction, of all calls of the traced plan that the trace shows, by themselves or within their heading."""
    halves: Mapping[Half, float] = field(default_factory=dict)
    others: float = 1.0
    """The factor of operators that are in neither."""
    wholes: float | None = None
    """The factor of sampled layers as wholes, where the operators of a trace do not show theirs."""
    messages: Mapping[str, float] = field(default_factory=dict)
    exposed_reduction: float = 1.0
    """Share of a gradient reduction that the backward does not hide."""
    host_us: float = 0.0
    """Time of the host around one run of an operator, beyond what is predicted."""
    complete: frozenset[str] = frozenset()
    """Kinds of layers that the trace shows in full: HOST for those of one rank, else the heading of their messages."""
    scaled: Mapping[str, float] = field(default_factory=dict)
    """Heading → factor on its time that a question asks for."""
    links: float = 1.0
    """Factor on the time of messages that a question asks for."""

    pace_doubt: float = 0.0
    """Standard deviation in log time of the pace of all operators, where only a share of the trace's holds."""

    @property
    def seen(self) -> bool:
        """Whether the trace shows operators."""
        return bool(self.halves)

    @property
    def unscaled(self) -> TraceFactors:
        """The trace's own factors, without those that a question asks for."""
        return replace(self, scaled={}, links=1.0)

    def of(self, call: Call, way: str) -> tuple[float, str]:
        """The factor of an operator, and whether it is replayed or modelled."""
        heading = heading_of(call)
        scale = self.scaled.get(heading, 1.0)
        own = self.calls.get((call, way))
        if own is not None:
            return scale * own, REPLAYED
        return scale * self.halves.get((heading, way), self.others), MODELLED

    def of_messages(self, heading: str) -> tuple[float, str]:
        """The factor of messages of a heading, and whether it is replayed or modelled."""
        scale = self.scaled.get(heading, 1.0) * self.links
        seen = self.messages.get(heading)
        return (scale, MODELLED) if seen is None else (scale * seen, REPLAYED)

    def host_beside_us(self, call: Call) -> float:
        """The host's time around one run of an operator."""
        return 0.0 if heading_of(call) == OPTIMIZER else self.host_us * self.scaled.get(HOST, 1.0)

    def in_other_layers(self) -> TraceFactors:
        """The factors for a plan whose layers are sharded, where the traced one's are not, or the other way round: distributed tensors
        take the host much longer, so that its time does not carry over."""
        return replace(self, host_us=0.0)

    def on_other_threads(self, pace: float) -> TraceFactors:
        """The factors for ranks of another number of threads, whose operators are another device's: of the traced step's `pace` a share,
        and the host's time, since it is one thread that launches."""
        shared = pace**SHARED
        return TraceFactors(
            others=shared,
            wholes=shared,
            host_us=self.host_us,
            messages=self.messages,
            exposed_reduction=self.exposed_reduction,
            pace_doubt=SHARED_WIDTH * abs(math.log(pace)) / NINETY,
        )


def paces(alone: PredictedStep, measured: TracedStep, *, sharded: bool) -> TraceFactors:
    """The factors by a step without its profiler. `alone` is the step of operators priced by themselves, `sharded` whether its layers are
    spread over ranks."""
    raw_us, deviations_log = _halves_of(alone)
    seen_us = _seen(measured, raw_us)
    both = [half for half in raw_us if raw_us[half] > 0 and seen_us.get(half, 0.0) > 0]
    if not both:
        return TraceFactors()

    def evidence(expected_us: float, time_us: float, half: Half) -> Evidence:
        noise = independent_causes(REPEATS, MISNAMED * measured.step_us / max(expected_us, time_us))
        return Evidence(math.log(time_us / expected_us), noise, independent_causes(ALONE, deviations_log[half]))

    whole_us, whole_seen_us = (sum(of[half] for half in both) for of in (raw_us, seen_us))
    of_all = Evidence(math.log(whole_seen_us / whole_us), REPEATS, ALL).towards(0.0)
    halves = {half: evidence(raw_us[half], seen_us[half], half).towards(of_all) for half in both}
    shown = measured_calls(measured)
    calls = {}
    for key, (_, expected_us) in alone.calls.items():
        if (half := (heading_of(key[0]), key[1])) in halves:
            _, time_us = shown.get(key, (0.0, 0.0))
            own = (
                evidence(expected_us, time_us, half).towards(halves[half])
                if expected_us > 0 and time_us > 0
                else halves[half]
            )
            calls[key] = math.exp(own)
    messages = dict(_of_messages(alone, measured))
    return TraceFactors(
        calls=calls,
        halves={half: math.exp(log) for half, log in halves.items()},
        others=math.exp(of_all),
        messages=messages,
        exposed_reduction=_exposed_share(measured),
        host_us=_host_us(alone, measured),
        complete=frozenset([*messages, *([] if sharded else [HOST])]),
    )


def _halves_of(alone: PredictedStep) -> tuple[dict[Half, float], dict[Half, float]]:
    """µs by heading and direction, and the standard deviation in log time that their sources leave."""
    found: dict[Half, float] = defaultdict(float)
    deviations_log: dict[Half, float] = {}
    for (call, way), (_, time_us) in alone.calls.items():
        half = heading_of(call), way
        found[half] += time_us
        deviations_log[half] = alone.deviations_log.get(half[0], 0.0)
    return found, deviations_log


def _seen(measured: TracedStep, predicted: Mapping[Half, float]) -> dict[Half, float]:
    """The measured time of each predicted half; of a heading that is predicted in one direction alone, all of it."""
    seen = dict(measured.halves)
    for heading, way in predicted:
        if (heading, BACKWARD if way == FORWARD else FORWARD) not in predicted:
            seen[heading, way] = measured.headings.get(heading, 0.0)
    return seen


def _host_us(alone: PredictedStep, measured: TracedStep) -> float:
    """Time around one run of an operator, of the optimizer's apart, which stand in spans of their own."""
    runs = sum(count for (call, _), (count, _) in alone.calls.items() if heading_of(call) != OPTIMIZER)
    seen_us, expected_us = (sum(of.get(name, 0.0) for name in BESIDE) for of in (measured.headings, alone.headings))
    return max(0.0, seen_us - expected_us) / runs if runs else 0.0


def _exposed_share(measured: TracedStep) -> float:
    messages = measured.messages(DP)
    return min(1.0, messages.exposed_us / messages.transfer_us) if messages and messages.transfer_us else 1.0


def _of_messages(alone: PredictedStep, measured: TracedStep) -> Iterator[tuple[str, float]]:
    """Factors of messages: of those within layers by what they add, which includes waiting; of others by their transfer, which more than
    one rank distinguishes from waiting."""
    for name, expected_us in alone.messages_us.items():
        messages = measured.messages(name)
        if not messages or not expected_us:
            continue
        transfer_us = messages.transfer_us if len(measured.ranks) > 1 else 0.0
        if time_us := messages.exposed_us if name == TP else transfer_us:
            misnamed = MISNAMED * measured.step_us / max(expected_us, time_us)
            log = math.log(time_us / expected_us)
            spread = SENDS if name == P2P else COLLECTIVES
            yield name, math.exp(Evidence(log, independent_causes(SENDS, misnamed), spread).towards(0.0))
