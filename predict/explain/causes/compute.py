"""Causes in compute: a rank, an operator or all of them slower than predicted.

A rank is held against the other ranks of its pipeline stage where several were traced, and an operator against its prediction
times the median ratio of all operators, so that a machine that is slower throughout does not accuse each of its operators.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from predict.explain.causes.finding import SLOWER, Finding
from predict.explain.measured import MeasuredRank, MeasuredStep
from predict.explain.medians import weighted_median
from predict.explain.predicted import PredictedStep
from predict.explain.trace.kernel_names import name_of_kernel
from predict.explain.trace.naming import ATTENTION
from predict.run.calibration.priors import NINETY
from predict.step.breakdown import HOST, OPTIMIZER, P2P, TP
from sampling.arithmetic.operator import Operator
from sampling.operators.attention import Attention

PARTS = "parts of layers"
UNFUSED_WORDS = "the unfused kernel, products with a softmax between them"
MATH, SOFTMAX = "_scaled_dot_product_attention_math", "aten::_softmax"
FUSED: Mapping[str, str] = {
    "cudnn": "the cuDNN kernel",
    "flash": "the flash kernel",
    "efficient": "the memory-efficient kernel",
}
"""Part of a name and the kernel that it tells; cuDNN's own kernels bear the second name too."""


def pace_of(predicted: PredictedStep, measured: MeasuredStep) -> float:
    """The median over the predicted headings of operators of measured over predicted time, each weighted by its predicted time."""
    found = computing(predicted, measured)
    return weighted_median([(seen_us / expected_us, expected_us) for _, expected_us, seen_us in found])


def computing(predicted: PredictedStep, measured: MeasuredStep) -> Iterator[tuple[str, float, float]]:
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


def _reasons(measured: MeasuredStep, *, of_another: bool = False) -> str:
    """Why a whole device may be slow; `of_another` says that the prediction rests on another device's times."""
    other = "another device than the one that was sampled, " if of_another else ""
    if measured.on_device:
        return f"{other}a lower clock, a power or thermal limit, or other work on the GPU"
    return f"{other}fewer threads, a lower clock, or other work on the processor"


def slow_ranks(predicted: PredictedStep, measured: MeasuredStep) -> Iterator[Finding]:
    """A rank whose same calls take longer than on the fastest rank that runs them too."""
    if len(measured.ranks) < 2:
        return
    for rank in measured.ranks:
        ratio, cost_us = _against_others(rank, [each for each in measured.ranks if each is not rank])
        if ratio >= SLOWER:
            yield Finding(
                cause="slow_rank",
                text=(
                    f"Rank {rank.rank} runs the same operators {ratio:.2f} × as long as the fastest other rank: {_reasons(measured)}."
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
    shapes shows none: then by heading and direction, which are the same work on all ranks unless they are of a pipeline."""
    if not (rank.calls or P2P in rank.messages):
        return {half: (1.0, time_us) for half, time_us in rank.halves.items() if time_us}
    found: dict[Any, tuple[float, float]] = {}
    for (call, _), (runs, time_us) in rank.calls.items():
        runs_before, time_before_us = found.get(call, (0.0, 0.0))
        found[call] = runs_before + runs, time_before_us + time_us
    return {call: (runs, time_us) for call, (runs, time_us) in found.items() if runs and time_us}


def _slower(name: str, predicted: PredictedStep) -> float:
    """The ratio over its prediction from which on an operator is slower than was expected: beyond the interval of the prediction too."""
    return max(SLOWER, math.exp(NINETY * predicted.doubts[name]))


def attention(predicted: PredictedStep, measured: MeasuredStep, pace: float) -> Iterator[Finding]:
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
            headings=frozenset(["attention"]),
        )


def unfused_kernel(predicted: PredictedStep, measured: MeasuredStep) -> Iterator[Finding]:
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
    of_attention = [name.lower() for name in names if (known := name_of_kernel(name)) and known.heading == ATTENTION]
    for part, words in FUSED.items():
        if any(part in name for name in of_attention):
            return words
    return UNFUSED_WORDS if SOFTMAX in names else "a kernel that it does not name"


def operators(predicted: PredictedStep, measured: MeasuredStep, pace: float) -> Iterator[Finding]:
    """Operators apart from attention that are slower than their prediction at the pace of the others."""
    for name, expected_us, seen_us in computing(predicted, measured):
        if name not in ("attention", PARTS) and seen_us > _slower(name, predicted) * pace * expected_us:
            yield Finding(
                cause="operator",
                text=f"{name} takes {seen_us / expected_us:.1f} × its prediction, where the other operators take {pace:.1f} ×.",
                cost_us=seen_us - pace * expected_us,
                headings=frozenset([name]),
            )


def all_slower(predicted: PredictedStep, measured: MeasuredStep, pace: float) -> Iterator[Finding]:
    """All operators slower alike: the processor, and no single operator."""
    found = [*computing(predicted, measured)]
    whole_us = sum(expected_us for _, expected_us, _ in found)
    if pace >= SLOWER:
        yield Finding(
            cause="slow_compute",
            text=(
                f"All operators take about {pace:.1f} × their prediction: {_reasons(measured, of_another=predicted.transferred)}."
            ),
            cost_us=(pace - 1) * whole_us,
            headings=frozenset([*(name for name, _, _ in found), *predicted.guessed]),
        )
