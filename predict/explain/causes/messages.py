"""Causes in messages: links slower than assumed, and pipeline ranks that wait for one another."""

from __future__ import annotations

from collections.abc import Iterator

from predict.explain.causes.finding import LEAST_SHARE, SLOWER, Finding
from predict.explain.measured import MeasuredMessages, MeasuredStep
from predict.explain.predicted import PredictedStep
from predict.explain.trace.messages import COMMUNICATION
from predict.step.breakdown import BUBBLE, P2P
from sampling.number_text import duration, percent, significant

MESSAGES = "messages"
"""Cause of messages of one traced rank, which may wait for other ranks or be slow."""
GB_PER_S = 1e-3
"""GB/s of a byte per µs."""


def slow_messages(predicted: PredictedStep, measured: MeasuredStep, pace: float) -> Iterator[Finding]:
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


def _sends_of_one_rank(
    predicted: PredictedStep, measured: MeasuredStep, messages: MeasuredMessages
) -> Iterator[Finding]:
    """Sends of one rank of a pipeline, in flight for longer than they and the pipeline's bubble were predicted: the bubble is waiting within
    them, which the other rank's trace alone tells from a slow link."""
    sending_us, waiting_us = predicted.messages_us[P2P], predicted.headings.get(BUBBLE, 0.0)
    if messages.total_us > SLOWER * (sending_us + waiting_us):
        yield Finding(
            cause=MESSAGES,
            text=f"The {COMMUNICATION[P2P]} are in flight for {duration(messages.total_us)} per step, waiting for other ranks included; predicted "
            f"are {duration(sending_us)}, and {duration(waiting_us)} of waiting: traces of the other ranks tell a slow link from a late rank.",
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
    """The time in flight, which is the most that the transfer can take: one rank does not tell it from waiting for another."""
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


def bubble(predicted: PredictedStep, measured: MeasuredStep) -> Iterator[Finding]:
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
        f"because the rest of the step takes {longer:.2f} × its prediction{late}.",
        cost_us=cost_us,
        headings=frozenset([BUBBLE]),
    )
