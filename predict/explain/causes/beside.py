"""Causes beside compute: standing still, the host, data, the profiler, and kernels without an operator."""

from __future__ import annotations

from collections.abc import Iterator

from predict.explain.causes.compute import PARTS, computing, layers_rest
from predict.explain.causes.finding import Finding
from predict.explain.measured import MeasuredStep
from predict.explain.predicted import PredictedStep
from predict.explain.trace.timeline import DATA, IDLE, UNNAMED
from predict.step.breakdown import HOST, TP
from sampling.number_text import duration

UNEXPLAINED_SHARE = 0.1
"""Share of the step from which on kernels that no operator names are told."""


def noise(measured: MeasuredStep) -> Iterator[Finding]:
    """A note on a noisy run, whose noise may be any of the differences."""
    if measured.noise:
        yield Finding(
            cause="noise",
            text="The run was noisy, and any of these differences may be its noise: trace it again on a quiet machine.",
            cost_us=0.0,
        )


def standstill(measured: MeasuredStep) -> Iterator[Finding]:
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


def host(predicted: PredictedStep, measured: MeasuredStep, pace: float) -> Iterator[Finding]:
    """The host's time beyond the prediction, and waiting for data."""
    seen = measured.headings
    extra_us = seen.get(HOST, 0.0) - predicted.headings.get(HOST, 0.0)
    extra_us += min(0.0, measured.waiting_us(TP) - layers_rest(predicted))
    found = computing(predicted, measured)
    parts = [seen_us - max(1.0, pace) * expected_us for name, expected_us, seen_us in found if name == PARTS]
    unsure = not measured.on_device and measured.untraced_us is None
    yield Finding(
        cause="host",
        text=f"{seen.get(HOST, 0.0) / measured.step_us:.0%} of the step waits for the host between operators "
        f"(predicted {predicted.headings.get(HOST, 0.0) / predicted.step_us:.0%})"
        + ("; the profiler's own time is part of it: --log takes the step without it." if unsure else "."),
        cost_us=min(extra_us, *parts) if parts else extra_us,
        headings=frozenset([HOST]),
    )
    yield Finding(
        cause="data",
        text=f"{seen.get(DATA, 0.0) / measured.step_us:.0%} of the step waits for the data loader.",
        cost_us=seen.get(DATA, 0.0),
        headings=frozenset([DATA]),
    )


def unexplained(measured: MeasuredStep) -> Iterator[Finding]:
    """Kernels that no operator names, where they are much of the step."""
    unnamed_us = measured.headings.get(UNNAMED, 0.0)
    if unnamed_us >= UNEXPLAINED_SHARE * measured.step_us:
        yield Finding(
            cause="unexplained",
            text=f"{unnamed_us / measured.step_us:.0%} of the step is kernels that no operator of the prediction explains: code of "
            "your own, or a trace without record_shapes=True.",
            cost_us=unnamed_us,
        )


def without_shapes(measured: MeasuredStep) -> Iterator[Finding]:
    """A note on a trace from which no call can be told."""
    if not any(rank.calls for rank in measured.ranks):
        yield Finding(
            cause="no_shapes",
            text="The trace has no shapes: operators are told by their names alone, and its products are not held against those of the "
            "config; record_shapes=True adds them.",
            cost_us=0.0,
        )


PROFILER = "profiler"
MUCH_ADDED = 1.0
"""Time that a profiler adds, over that of the step, beyond which other work may have slowed the traced step too. Assumed."""


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
