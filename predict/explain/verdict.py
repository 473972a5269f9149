"""The verdict: what makes a measured step another than the predicted one, each cause in a sentence, the costliest first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from predict.explain.causes.beside import host, noise, profiler, standstill, unexplained, without_shapes
from predict.explain.causes.compute import (
    all_slower,
    attention,
    layers_rest,
    operators,
    pace_of,
    slow_ranks,
    unfused_kernel,
)
from predict.explain.causes.finding import LEAST_SHARE, Finding
from predict.explain.causes.messages import MESSAGES, bubble, slow_messages
from predict.explain.measured import MeasuredStep
from predict.explain.predicted import PredictedStep
from predict.explain.trace.timeline import UNNAMED
from predict.step.breakdown import HOST, TP
from sampling.number_text import duration, signed_percent

LAYERS = "layers, with the host's time between their operators,"
"""Row of layers of which samples tell the whole alone."""


def findings(predicted: PredictedStep, measured: MeasuredStep, *, profiler_us: float = 0.0) -> list[Finding]:
    """The causes, the costliest first; a step as predicted has one finding that says so. `profiler_us` is what the profiler added to the
    traced step, and `measured` the step without it."""
    pace = pace_of(predicted, measured)
    found = [
        *standstill(measured),
        *slow_ranks(predicted, measured),
        *attention(predicted, measured, pace),
        *operators(predicted, measured, pace),
        *all_slower(predicted, measured, pace),
        *slow_messages(predicted, measured, 1.0 if measured.on_device else max(1.0, pace)),
        *bubble(predicted, measured),
        *host(predicted, measured, pace),
        *unexplained(measured),
    ]
    least_us = LEAST_SHARE * measured.step_us
    worth = sorted((each for each in found if each.cost_us >= least_us), key=lambda each: -each.cost_us)
    largest = [*_largest_row(predicted, measured, worth)]
    worth += [each for each in largest if each.cost_us]  # after the causes: its waiting may be for what they name
    notes = [] if any(each.cause == "attention" for each in worth) else [*unfused_kernel(predicted, measured)]
    causes = [*worth, *notes] or [_as_predicted(predicted, measured, pace)]
    causes += without_shapes(measured)
    shorter = [each for each in largest if not each.cost_us]
    in_flight = [each for each in found if each.cause == MESSAGES and each not in worth]
    slowed = [each for each in profiler(profiler_us, measured.step_us) if each.cost_us >= least_us]
    return [*causes, *noise(measured), *shorter, *in_flight, *slowed]


def _largest_row(predicted: PredictedStep, measured: MeasuredStep, told: Sequence[Finding]) -> Iterator[Finding]:
    """The row of the ledger that differs most, where no cause explains it."""
    expected, seen = dict(predicted.headings), dict(measured.headings)
    seen.pop(UNNAMED, None)
    if together := _layers(predicted):
        for of in (expected, seen):
            of[LAYERS] = sum(of.pop(each, 0.0) for each in together)
    off_us = {name: seen.get(name, 0.0) - expected.get(name, 0.0) for name in (*expected, *seen)}
    name = max(off_us, key=lambda each: abs(off_us[each]), default="")
    explained = {LAYERS if each in together else each for one in told for each in one.headings}
    if not name or abs(off_us[name]) < LEAST_SHARE * measured.step_us or name in explained:
        return
    s = "" if name == LAYERS else "s"
    longer = "longer" if off_us[name] > 0 else "shorter"
    yield Finding(
        cause="largest_row",
        text=f"The largest difference that no other cause explains: {name} take{s} {duration(seen.get(name, 0.0))}, "
        f"{duration(abs(off_us[name]))} {longer} than predicted.",
        cost_us=max(0.0, off_us[name]),
        headings=frozenset([name]),
    )


def _layers(predicted: PredictedStep) -> frozenset[str]:
    """Rows that samples of whole layers do not part: operators that no sample covers by themselves, the host's time between operators, and
    the messages of layers over several ranks."""
    spread = [TP] if layers_rest(predicted) else []
    return frozenset([*predicted.guessed, *spread, HOST]) if predicted.guessed or spread else frozenset()


def _as_predicted(predicted: PredictedStep, measured: MeasuredStep, pace: float) -> Finding:
    error = predicted.step_us / measured.step_us - 1
    return Finding(
        cause="none",
        text=f"The prediction's error is {signed_percent(error)} of the step, and no single cause makes up {LEAST_SHARE:.0%} of it; its operators take "
        f"{pace:.2f} × their prediction at the median.",
        cost_us=0.0,
    )
