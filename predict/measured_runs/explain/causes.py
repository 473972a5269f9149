"""Causes in compute: a rank, an operator or all of them slower than predicted.

A rank is compared with the other ranks of its pipeline stage where several were traced, and an operator with its prediction
times the median ratio of all operators, so that a machine that is slower throughout does not accuse each of its operators.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from predict.measured_runs.explain.measured import MeasuredMessages, MeasuredRank, TracedStep
from predict.measured_runs.explain.messages import COMMUNICATION
from predict.measured_runs.explain.naming import ATTENTION, name_of_kernel
from predict.measured_runs.explain.predicted import PredictedStep
from predict.measured_runs.explain.timeline import DATA, IDLE, UNNAMED
from predict.measured_runs.explain.trace_matches_config import weighted_median
from predict.run.calibration_terms import NINETY
from predict.step.breakdown import BUBBLE, HOST, OPTIMIZER, P2P, TP
from sampling.arithmetic.operator import Operator
from sampling.number_text import duration, multiple, percent, significant, whole_percent
from sampling.operators.attention import Attention

# Finding: one cause of a difference, in a word and in a sentence.

LEAST_SHARE = 0.03
"""Share of the step from which on a difference is worth a sentence."""
SLOWER = 1.4
"""Ratio over what was expected from which on an operator, a rank or a link counts as slower."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One cause: a word for programs, a sentence for people, and the µs of the step that it costs."""

    cause: str
    text: str
    cost_us: float
    headings: frozenset[str] = frozenset()
    """Rows of the ledger whose difference it explains."""


PARTS = "parts of layers"
UNFUSED_WORDS = "the unfused kernel, products with a softmax between them"
MATH, SOFTMAX = "_scaled_dot_product_attention_math", "aten::_softmax"
FUSED: Mapping[str, str] = {
    "cudnn": "the cuDNN kernel",
    "flash": "the flash kernel",
    "efficient": "the memory-efficient kernel",
}
"""Part of a name and the kernel that it names; cuDNN's own kernels bear the second name too."""


def pace_of(predicted: PredictedStep, measured: TracedStep) -> float:
    """The median over the predicted headings of operators of measured over predicted time, each weighted by its predicted time."""
    found = computing(predicted, measured)
    return weighted_median([(seen_us / expected_us, expected_us) for _, expected_us, seen_us in found])


def computing(predicted: PredictedStep, measured: TracedStep) -> Iterator[tuple[str, float, float]]:
    """(heading, predicted µs, measured µs) of operators; those that no sample covers are one, with the pauses between them, since
    nothing but the time of the layers that they are parts of was sampled."""
    seen = measured.headings
    names = {call.HEADING or call.NAME for call, _ in predicted.calls if isinstance(call, Operator)} - {OPTIMIZER}
    for name in sorted(names - predicted.guessed):
        if predicted.headings.get(name) and seen.get(name):
            yield name, predicted.headings[name], seen[name]
    if predicted.guessed:
        expected_us, seen_us = (
            sum(of.get(name, 0.0) for name in (*predicted.guessed, HOST)) for of in (predicted.headings, seen)
        )
        rest_us = layers_rest(predicted)
        # their waiting, as far as the samples' rest has room for it; what goes beyond is the messages' own
        waited_us = min(measured.waiting_us(TP), max(0.0, rest_us - seen.get(HOST, 0.0)))
        yield PARTS, expected_us + rest_us, seen_us + waited_us


def layers_rest(predicted: PredictedStep) -> float:
    """Time of tensor-parallel layers beyond their operators and messages: waiting or pauses, which samples of whole layers do not part."""
    return max(0.0, predicted.headings.get(TP, 0.0) - predicted.messages_us.get(TP, 0.0))


def _reasons(measured: TracedStep, *, of_another: bool = False) -> str:
    """Why a whole device may be slow; `of_another` says that the prediction rests on another device's times."""
    other = "another device than the one that was sampled, " if of_another else ""
    if measured.on_device:
        return f"{other}a lower clock, a power or thermal limit, or other work on the GPU"
    return f"{other}fewer threads, a lower clock, or other work on the processor"


def slow_ranks(predicted: PredictedStep, measured: TracedStep) -> Iterator[Finding]:
    """A rank whose same calls take longer than on the fastest rank that runs them too."""
    if len(measured.ranks) < 2:
        return
    for rank in measured.ranks:
        ratio, cost_us = _against_others(rank, [each for each in measured.ranks if each is not rank])
        if ratio >= SLOWER:
            yield Finding(
                cause="slow_rank",
                text=(
                    f"Rank {rank.rank} runs the same operators {multiple(ratio)} as long as the fastest other rank: {_reasons(measured)}."
                ),
                cost_us=cost_us,
                headings=frozenset(name for name, _, _ in computing(predicted, measured)),
            )


def _against_others(rank: MeasuredRank, others: Sequence[MeasuredRank]) -> tuple[float, float]:
    """The median ratio of a rank's time per run to the others' fastest, and the µs that it costs; 1 where they share no work."""
    ratios = []
    cost_us = 0.0
    of_others = [_runs_and_times(other) for other in others]
    for key, (runs, time_us) in _runs_and_times(rank).items():
        known = [work[key][1] / work[key][0] for work in of_others if key in work]
        if known:
            fastest_us = runs * min(known)
            ratios.append((time_us / fastest_us, fastest_us))
            cost_us += time_us - fastest_us
    return weighted_median(ratios), cost_us


def _runs_and_times(rank: MeasuredRank) -> Mapping[Any, tuple[float, float]]:
    """Runs and µs per step by call, of its forward and its backward together, since runs are counted of forwards alone. A trace without
    shapes shows none: then by heading and direction, which are the same work on all ranks unless these form a pipeline."""
    if not (rank.calls or P2P in rank.messages):
        return {half: (1.0, time_us) for half, time_us in rank.halves.items() if time_us}
    found: dict[Any, tuple[float, float]] = {}
    for (call, _), (runs, time_us) in rank.calls.items():
        runs_before, time_before_us = found.get(call, (0.0, 0.0))
        found[call] = runs_before + runs, time_before_us + time_us
    return {call: (runs, time_us) for call, (runs, time_us) in found.items() if runs and time_us}


def _slower(name: str, predicted: PredictedStep) -> float:
    """The ratio over its prediction from which on an operator is slower than was expected: beyond the interval of the prediction too."""
    return max(SLOWER, math.exp(NINETY * predicted.deviations_log[name]))


def attention(predicted: PredictedStep, measured: TracedStep, pace: float) -> Iterator[Finding]:
    """Attention beyond the pace of the other operators, with the kernel that ran."""
    expected_us, seen_us = predicted.headings.get("attention", 0.0), measured.headings.get("attention", 0.0)
    kernel = attention_kernel(measured)
    if "attention" in predicted.guessed:
        return
    if expected_us and seen_us > _slower("attention", predicted) * pace * expected_us:
        yield Finding(
            cause="attention",
            text=f"Attention takes {multiple(seen_us / expected_us)} its prediction (other operators {multiple(pace)}): it ran {kernel}.",
            cost_us=seen_us - pace * expected_us,
            headings=frozenset(["attention"]),
        )


def unfused_kernel(predicted: PredictedStep, measured: TracedStep) -> Iterator[Finding]:
    """Attention that ran unfused, at whatever cost, where the prediction has a fused kernel."""
    fused = any(isinstance(call, Attention) for call, _ in predicted.calls)
    if fused and attention_kernel(measured) == UNFUSED_WORDS:
        yield Finding(
            cause="attention", text=f"Attention ran {UNFUSED_WORDS}, where the prediction has a fused one.", cost_us=0.0
        )


def attention_kernel(measured: TracedStep) -> str:
    """The attention kernel that the trace shows, in words."""
    names = {name for rank in measured.ranks for name in rank.operators}
    if any(MATH in name for name in names):
        return UNFUSED_WORDS
    of_attention = [name.lower() for name in names if (known := name_of_kernel(name)) and known.heading == ATTENTION]
    for part, words in FUSED.items():
        if any(part in name for name in of_attention):
            return words
    return UNFUSED_WORDS if SOFTMAX in names else "a kernel that it does not name"


def operators(predicted: PredictedStep, measured: TracedStep, pace: float) -> Iterator[Finding]:
    """Operators apart from attention that are slower than their prediction at the pace of the others."""
    for name, expected_us, seen_us in computing(predicted, measured):
        if name not in ("attention", PARTS) and seen_us > _slower(name, predicted) * pace * expected_us:
            yield Finding(
                cause="operator",
                text=f"{name} takes {multiple(seen_us / expected_us)} its prediction, where the other operators take {multiple(pace)}.",
                cost_us=seen_us - pace * expected_us,
                headings=frozenset([name]),
            )


ALL_SLOWER = "slow_compute"


def all_slower(predicted: PredictedStep, measured: TracedStep, pace: float) -> Iterator[Finding]:
    """All operators slower alike: the processor, and no single operator."""
    found = [*computing(predicted, measured)]
    whole_us = sum(expected_us for _, expected_us, _ in found)
    if pace >= SLOWER:
        yield Finding(
            cause=ALL_SLOWER,
            text=(
                f"All operators take about {multiple(pace)} their prediction: {_reasons(measured, of_another=predicted.transferred)}."
            ),
            cost_us=(pace - 1) * whole_us,
            headings=frozenset([*(name for name, _, _ in found), *predicted.guessed]),
        )


# Causes in messages: links slower than assumed, and pipeline ranks that wait for one another.

MESSAGES = "messages"
"""Cause of messages of one traced rank, which may wait for other ranks or be slow."""
GB_PER_S = 1e-3
"""GB/s of a byte per µs."""


def slow_messages(predicted: PredictedStep, measured: TracedStep, pace: float) -> Iterator[Finding]:
    """Messages that take longer than predicted; on a CPU, which carries them itself, at the pace of its operators."""
    for heading, words in COMMUNICATION.items():
        messages, expected_us = measured.messages(heading), predicted.messages_us.get(heading, 0.0)
        if messages is None or not expected_us:
            continue
        alone = len(measured.ranks) < 2
        if alone and heading == P2P:
            yield from _sends_of_one_rank(predicted, measured, messages)
            continue
        seen_us = messages.total_us if alone else messages.transfer_us
        if seen_us > SLOWER * pace * expected_us:
            say = _of_one_rank if alone else _of_ranks
            added_us = messages.exposed_us - predicted.headings.get(heading, 0.0)
            yield Finding(
                cause=MESSAGES if alone else "communication",
                text=f"The {words} {say(messages, expected_us)}{_bandwidth(predicted, heading, seen_us, at_least=alone)}.",
                cost_us=max(0.0, min(seen_us - expected_us, added_us)),
                headings=frozenset([heading]),
            )


def _sends_of_one_rank(predicted: PredictedStep, measured: TracedStep, messages: MeasuredMessages) -> Iterator[Finding]:
    """Sends of one rank of a pipeline, in flight for longer than they and the pipeline's bubble were predicted: the
    bubble is waiting within them, which the other rank's trace alone distinguishes from a slow link."""
    sending_us, waiting_us = predicted.messages_us[P2P], predicted.headings.get(BUBBLE, 0.0)
    if messages.total_us > SLOWER * (sending_us + waiting_us):
        yield Finding(
            cause=MESSAGES,
            text=f"The {COMMUNICATION[P2P]} are in flight for {duration(messages.total_us)} per step, waiting for other ranks included; predicted "
            f"are {duration(sending_us)}, and {duration(waiting_us)} of waiting: traces of the other ranks distinguish a slow link from a late rank.",
            cost_us=max(0.0, measured.headings.get(P2P, 0.0) - sending_us),  # what waits stands under the bubble
            headings=frozenset([P2P]),
        )


def _of_ranks(messages: MeasuredMessages, expected_us: float) -> str:
    """The transfer, without waiting for a late rank, since more than one rank was traced."""
    return (
        f"run at {percent(expected_us / messages.transfer_us)} of the assumed speed: {duration(messages.transfer_us)} per step "
        f"without waiting, {duration(expected_us)} predicted"
    )


def _of_one_rank(messages: MeasuredMessages, expected_us: float) -> str:
    """The time in flight, which is the most that the transfer can take: one rank does not distinguish it from waiting for another."""
    return (
        f"are in flight for {duration(messages.total_us)} per step, waiting for other ranks included, {duration(expected_us)} "
        f"predicted: at least {percent(expected_us / messages.total_us)} of the assumed speed"
    )


def _bandwidth(predicted: PredictedStep, heading: str, seen_us: float, *, at_least: bool) -> str:
    """The bytes that a rank puts on its link, over the time that they take."""
    wire_bytes, expected_us = predicted.wire_bytes.get(heading, 0.0), predicted.messages_us[heading]
    if not wire_bytes:
        return ""
    seen, assumed = (GB_PER_S * wire_bytes / time_us for time_us in (seen_us, expected_us))
    return (
        f" ({'at least ' if at_least else ''}{significant(seen, 2)} GB/s per rank, {significant(assumed, 2)} assumed)"
    )


def bubble(predicted: PredictedStep, measured: TracedStep) -> Iterator[Finding]:
    """Waiting of pipeline ranks beyond the prediction, with what it follows from."""
    expected_us, seen_us = (of.get(BUBBLE, 0.0) for of in (predicted.headings, measured.headings))
    cost_us = seen_us - expected_us
    if not expected_us or cost_us < LEAST_SHARE * measured.step_us:
        return
    longer = (measured.step_us - seen_us) / (predicted.step_us - expected_us)
    follows_us = min(cost_us, max(0.0, expected_us * (longer - 1)))
    rest_us = cost_us - follows_us
    late = f", {duration(rest_us)} because ranks take unlike times or come late" if rest_us else ""
    yield Finding(
        cause="bubble",
        text=f"Pipeline ranks wait {duration(seen_us)} for one another, {duration(expected_us)} predicted: {duration(follows_us)} more "
        f"because the rest of the step takes {multiple(longer)} its prediction{late}.",
        cost_us=cost_us,
        headings=frozenset([BUBBLE]),
    )


# Causes other than compute: standing still, the host, data, the profiler, and kernels without an operator.

UNEXPLAINED_SHARE = 0.1
"""Share of the step from which on kernels that no operator names are reported."""


def noise(measured: TracedStep) -> Iterator[Finding]:
    """A note on a noisy run, whose noise may be any of the differences."""
    if measured.noise:
        yield Finding(
            cause="noise",
            text="The run was noisy, and any of these differences may be its noise: trace it again on a quiet machine.",
            cost_us=0.0,
        )


def standstill(measured: TracedStep) -> Iterator[Finding]:
    """Ranks on which nothing ran for long stretches."""
    for rank in measured.ranks:
        idle_us = rank.headings.get(IDLE, 0.0)
        if idle_us:
            waited = max(
                (each.waiting_us for other in measured.ranks if other is not rank for each in other.messages.values()),
                default=0.0,
            )
            # beyond the standstill they waited for the pipeline's usual bubble too
            others = (
                f"; the others waited up to {duration(min(waited, idle_us))} for it" if waited > idle_us / 2 else ""
            )
            yield Finding(
                cause="standstill",
                text=(
                    f"Rank {rank.rank} stood still for {duration(idle_us)} of the step "
                    f"(longest {duration(rank.longest_idle_us)}): no operator ran and no message was awaited{others}."
                ),
                cost_us=idle_us,
                headings=frozenset([IDLE]),
            )


def host(predicted: PredictedStep, measured: TracedStep, pace: float) -> Iterator[Finding]:
    """The host's time beyond the prediction, and waiting for data."""
    seen = measured.headings
    extra_us = seen.get(HOST, 0.0) - predicted.headings.get(HOST, 0.0)
    extra_us += min(0.0, measured.waiting_us(TP) - layers_rest(predicted))
    found = computing(predicted, measured)
    parts = [seen_us - max(1.0, pace) * expected_us for name, expected_us, seen_us in found if name == PARTS]
    unsure = not measured.on_device and measured.untraced_us is None
    yield Finding(
        cause="host",
        text=f"{whole_percent(seen.get(HOST, 0.0) / measured.step_us)} of the step waits for the host between operators "
        f"(predicted {whole_percent(predicted.headings.get(HOST, 0.0) / predicted.step_us)})"
        + ("; the profiler's own time is part of it: --log takes the step without it." if unsure else "."),
        cost_us=min(extra_us, *parts) if parts else extra_us,
        headings=frozenset([HOST]),
    )
    yield Finding(
        cause="data",
        text=f"{whole_percent(seen.get(DATA, 0.0) / measured.step_us)} of the step waits for the data loader.",
        cost_us=seen.get(DATA, 0.0),
        headings=frozenset([DATA]),
    )


def unexplained(measured: TracedStep) -> Iterator[Finding]:
    """Kernels that no operator names, where they are much of the step."""
    unnamed_us = measured.headings.get(UNNAMED, 0.0)
    if unnamed_us >= UNEXPLAINED_SHARE * measured.step_us:
        yield Finding(
            cause="unexplained",
            text=f"{whole_percent(unnamed_us / measured.step_us)} of the step is kernels that no operator of the prediction explains: code of "
            "your own, or a trace without record_shapes=True.",
            cost_us=unnamed_us,
        )


def without_shapes(measured: TracedStep) -> Iterator[Finding]:
    """A note on a trace from which no call can be read."""
    if not any(rank.calls for rank in measured.ranks):
        yield Finding(
            cause="no_shapes",
            text="The trace has no shapes: operators are recognised by their names alone, and its products are not compared with those of the "
            "config; record_shapes=True adds them.",
            cost_us=0.0,
        )


PROFILER = "profiler"
MUCH_ADDED = 1.0
"""Time that a profiler adds, over the step's, beyond which other work may have slowed the traced step too. Assumed."""


def profiler(added_us: float, step_us: float) -> Iterator[Finding]:
    """The time that the profiler adds to a step of `step_us`."""
    doubt = ""
    if added_us > MUCH_ADDED * step_us:
        doubt = " That is more than a profiler usually adds: other work may have slowed the traced step too, and then the ledger hides it."
    yield Finding(
        cause=PROFILER,
        text=f"The profiler makes the traced step {duration(added_us)} longer than it is without, which the ledger leaves out: taken from "
        f"the host's time first, then from all operators alike.{doubt}",
        cost_us=added_us,
    )
