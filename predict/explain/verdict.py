"""The verdict: what makes a measured step another than the predicted one, each cause in a sentence, the costliest first.

A rank is held against the other ranks of its pipeline stage where several were traced, and an operator against its prediction
times the median ratio of all operators, so that a machine that is slower throughout does not accuse each of its operators.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from predict.explain.measured import MeasuredRank, MeasuredStep
from predict.explain.medians import weighted_median
from predict.explain.predicted import PredictedStep
from predict.explain.timeline import DATA, IDLE, UNNAMED
from predict.run.calibration.priors import NINETY
from predict.step.itemised.breakdown import DP, OPTIMIZER, P2P
from predict.step.itemised.items import HOST, TP
from predict.step.prediction import Prediction
from sampling.arithmetic.operator import Operator
from sampling.number_text import signed_percent
from sampling.operators.attention import Attention

LEAST_SHARE = 0.03
"""Share of the step from which on a difference is worth a sentence."""
UNEXPLAINED_SHARE = 0.1
"""Share of the step from which on kernels that no operator names are told."""
SLOWER = 1.4
"""Ratio over what was expected from which on an operator, a rank or a link counts as slower."""
PARTS = "parts of layers"
COMMUNICATION: Mapping[str, str] = {
    TP: "tensor-parallel collectives",
    DP: "data-parallel collectives",
    P2P: "sends between pipeline ranks",
    "ep": "expert all-to-all",
    "cp": "context-parallel messages",
}
UNFUSED_WORDS = "the unfused kernel, products with a softmax between them"
MATH, SOFTMAX = "_scaled_dot_product_attention_math", "aten::_softmax"
FUSED: Mapping[str, str] = {
    "flash": "the flash kernel",
    "efficient": "the memory-efficient kernel",
    "cudnn": "the cuDNN kernel",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One cause: a word for programs, a sentence for people, and the µs of the step that it costs."""

    cause: str
    text: str
    cost_us: float


def findings(prediction: Prediction, predicted: PredictedStep, measured: MeasuredStep) -> list[Finding]:
    """The causes, the costliest first; a step as predicted has one finding that says so."""
    least_us = LEAST_SHARE * measured.step_us
    pace = _pace(predicted, measured)
    found = [
        *_standstill(measured),
        *_slow_ranks(measured, prediction),
        *_attention(predicted, measured, pace),
        *_operators(predicted, measured, pace),
        *_all_slower(predicted, measured, pace),
        *_communication(predicted, measured, 1.0 if measured.on_device else max(1.0, pace)),
        *_host(predicted, measured, pace),
        *_unexplained(measured),
        *_profiler(measured),
    ]
    worth = sorted((each for each in found if each.cost_us >= least_us), key=lambda each: -each.cost_us)
    notes = [] if any(each.cause == "attention" for each in worth) else [*_kernel(predicted, measured)]
    return [*worth, *notes] or [_as_predicted(predicted, measured, pace)]


def _as_predicted(predicted: PredictedStep, measured: MeasuredStep, pace: float) -> Finding:
    off = measured.step_us / predicted.step_us - 1
    return Finding(
        cause="none",
        text=f"The step is {signed_percent(off)} from the prediction, and no single cause makes up {LEAST_SHARE:.0%} of it; its operators take "
        f"{pace:.2f} × their prediction all together.",
        cost_us=0.0,
    )


def _pace(predicted: PredictedStep, measured: MeasuredStep) -> float:
    """The median over the predicted headings of operators of measured over predicted time, each weighted by its predicted time."""
    found = _computing(predicted, measured)
    return weighted_median([(seen_us / expected_us, expected_us) for _, expected_us, seen_us in found])


def _computing(predicted: PredictedStep, measured: MeasuredStep) -> Iterator[tuple[str, float, float]]:
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
        yield PARTS, expected_us + _layers_rest(predicted), seen_us + measured.waiting_us(TP)


def _layers_rest(predicted: PredictedStep) -> float:
    """Time of tensor-parallel layers beyond their operators and messages: waiting or pauses, which samples of whole layers do not part."""
    return max(0.0, predicted.headings.get(TP, 0.0) - predicted.messages_us.get(TP, 0.0))


def _standstill(measured: MeasuredStep) -> Iterator[Finding]:
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
                f"; the others waited up to {min(waited, idle_us) / 1e3:.1f} ms for it" if waited > idle_us / 2 else ""
            )
            yield Finding(
                cause="standstill",
                text=(
                    f"Rank {rank.rank} stood still for {idle_us / 1e3:.1f} ms of the step "
                    f"(longest {rank.longest_idle_us / 1e3:.1f} ms): no operator ran and no message was awaited{others}."
                ),
                cost_us=idle_us,
            )


def _slow_ranks(measured: MeasuredStep, prediction: Prediction) -> Iterator[Finding]:
    """A rank whose same calls take longer than on the fastest rank that runs them too."""
    if len(measured.ranks) < 2:
        return
    for rank in measured.ranks:
        ratio, cost_us = _against_others(rank, [each for each in measured.ranks if each is not rank])
        if ratio >= SLOWER:
            yield Finding(
                cause="slow_rank",
                text=(
                    f"Rank {rank.rank} runs the same operators {ratio:.2f} × as long as the fastest other rank: it has fewer "
                    "threads, a lower clock, or shares its processor."
                ),
                cost_us=cost_us,
            )


def _against_others(rank: MeasuredRank, others: Sequence[MeasuredRank]) -> tuple[float, float]:
    """The median ratio of a rank's time per run to the others' fastest, and the µs that it costs; 1 where they share no call."""
    ratios = []
    cost_us = 0.0
    for key, (_, time_us) in rank.calls.items():
        known = [other.calls[key][1] for other in others if key in other.calls and other.calls[key][1]]
        if known and time_us:
            ratios.append((time_us / min(known), time_us))
            cost_us += time_us - min(known)
    return weighted_median(ratios), cost_us


def _slower(name: str, predicted: PredictedStep) -> float:
    """The ratio over its prediction from which on an operator is slower than was expected: beyond the interval of the prediction too."""
    return max(SLOWER, math.exp(NINETY * predicted.doubts[name]))


def _attention(predicted: PredictedStep, measured: MeasuredStep, pace: float) -> Iterator[Finding]:
    """Attention beyond the pace of the other operators, with the kernel that ran."""
    expected_us, seen_us = predicted.headings.get("attention", 0.0), measured.headings.get("attention", 0.0)
    kernel = attention_kernel(measured)
    if "attention" in predicted.guessed:
        return
    if expected_us and seen_us > _slower("attention", predicted) * pace * expected_us:
        yield Finding(
            cause="attention",
            text=f"Attention takes {seen_us / expected_us:.1f} × its prediction (other operators {pace:.1f} ×): it ran {kernel}.",
            cost_us=seen_us - pace * expected_us,
        )


def _kernel(predicted: PredictedStep, measured: MeasuredStep) -> Iterator[Finding]:
    """Attention that ran unfused, at whatever cost, where the prediction has a fused kernel."""
    fused = any(isinstance(call, Attention) for call, _ in predicted.calls)
    if fused and attention_kernel(measured) == UNFUSED_WORDS:
        yield Finding(
            cause="attention", text=f"Attention ran {UNFUSED_WORDS}, where the prediction has a fused one.", cost_us=0.0
        )


def attention_kernel(measured: MeasuredStep) -> str:
    """The attention kernel that the trace shows, in words."""
    names = {name for rank in measured.ranks for name in rank.operators}
    if any(MATH in name for name in names):
        return UNFUSED_WORDS
    for part, words in FUSED.items():
        if any("attention" in name and part in name for name in names):
            return words
    return UNFUSED_WORDS if SOFTMAX in names else "a kernel that it does not name"


def _operators(predicted: PredictedStep, measured: MeasuredStep, pace: float) -> Iterator[Finding]:
    """Operators apart from attention that are slower than their prediction at the pace of the others."""
    for name, expected_us, seen_us in _computing(predicted, measured):
        if name not in ("attention", PARTS) and seen_us > _slower(name, predicted) * pace * expected_us:
            yield Finding(
                cause="operator",
                text=f"{name} takes {seen_us / expected_us:.1f} × its prediction, where the other operators take {pace:.1f} ×.",
                cost_us=seen_us - pace * expected_us,
            )


def _all_slower(predicted: PredictedStep, measured: MeasuredStep, pace: float) -> Iterator[Finding]:
    """All operators slower alike: the processor, and no single operator."""
    whole_us = sum(expected_us for _, expected_us, _ in _computing(predicted, measured))
    if pace >= SLOWER:
        yield Finding(
            cause="slow_compute",
            text=(
                f"All operators take about {pace:.1f} × their prediction: fewer threads than the samples had, a lower clock, or "
                "other work on the processor."
            ),
            cost_us=(pace - 1) * whole_us,
        )


def _communication(predicted: PredictedStep, measured: MeasuredStep, pace: float) -> Iterator[Finding]:
    """Messages whose transfer, without waiting for a late rank, takes longer than predicted, where more than one rank
    was traced; on a CPU, which carries them itself, at the pace of its operators."""
    if len(measured.ranks) < 2:  # one rank does not tell transferring from waiting for another
        return
    for heading, words in COMMUNICATION.items():
        messages = measured.messages(heading)
        expected_us = predicted.messages_us.get(heading, 0.0)
        if messages is None or not expected_us:
            continue
        slow_us = min(messages.transfer_us - expected_us, messages.exposed_us - predicted.headings.get(heading, 0.0))
        if messages.transfer_us > SLOWER * pace * expected_us:
            yield Finding(
                cause="communication",
                text=(
                    f"The {words} run at {expected_us / messages.transfer_us:.0%} of the assumed speed: "
                    f"{messages.transfer_us / 1e3:.1f} ms a step without waiting, {expected_us / 1e3:.1f} ms predicted."
                ),
                cost_us=slow_us,
            )


def _unexplained(measured: MeasuredStep) -> Iterator[Finding]:
    """Kernels that no operator names, where they are much of the step."""
    unnamed_us = measured.headings.get(UNNAMED, 0.0)
    if unnamed_us >= UNEXPLAINED_SHARE * measured.step_us:
        yield Finding(
            cause="unexplained",
            text=f"{unnamed_us / measured.step_us:.0%} of the step is kernels that no operator of the prediction explains: code of "
            "your own, or a trace without record_shapes=True.",
            cost_us=unnamed_us,
        )


def _profiler(measured: MeasuredStep) -> Iterator[Finding]:
    """The time that the profiler adds, where the step is known without it."""
    added_us = measured.step_us - (measured.untraced_us or measured.step_us)
    yield Finding(
        cause="profiler",
        text=f"The profiler makes the step {added_us / 1e3:.1f} ms longer than it is without: short operators and the host's time bear "
        "most of it.",
        cost_us=added_us,
    )


def _host(predicted: PredictedStep, measured: MeasuredStep, pace: float) -> Iterator[Finding]:
    """The host's time beyond the prediction, and waiting for data."""
    seen = measured.headings
    extra_us = seen.get(HOST, 0.0) - predicted.headings.get(HOST, 0.0)
    extra_us += min(0.0, measured.waiting_us(TP) - _layers_rest(predicted))
    found = _computing(predicted, measured)
    parts = [seen_us - max(1.0, pace) * expected_us for name, expected_us, seen_us in found if name == PARTS]
    yield Finding(
        cause="host",
        text=f"{seen.get(HOST, 0.0) / measured.step_us:.0%} of the step waits for the host between operators "
        f"(predicted {predicted.headings.get(HOST, 0.0) / predicted.step_us:.0%}).",
        cost_us=min(extra_us, *parts) if parts else extra_us,
    )
    yield Finding(
        cause="data",
        text=f"{seen.get(DATA, 0.0) / measured.step_us:.0%} of the step waits for the data loader.",
        cost_us=seen.get(DATA, 0.0),
    )
