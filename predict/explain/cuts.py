"""One rank's trace cut into steps: the slices and messages of each."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from predict.explain.trace.messages import InFlight, messages_of, within
from predict.explain.trace.naming import Widths, name_operators, widths_of
from predict.explain.trace.steps import device_windows, steps_of
from predict.explain.trace.timeline import (
    RankEvents,
    Slice,
    communicating,
    device_slices,
    host_slices,
    nested_alike,
    working_spans,
)
from predict.run.training_run import TrainingRun
from sampling.errors import SamplesError
from sampling.importers.torch_trace.events import Trace


@dataclass(frozen=True, kw_only=True, slots=True)
class Cut:
    """One rank's steps: the slices and messages of each."""

    rank: int
    slices: list[list[Slice]]
    messages: list[list[InFlight]]
    step_times_us: list[float]


def cut_steps(trace: Trace, rank: int, run: TrainingRun, file: Path) -> Cut:
    """The steps of a rank's trace; SamplesError for one without any."""
    widths: Widths = widths_of(run.model, run.plan.tp)
    named = name_operators(trace.ops, trace.spans, widths)
    messages = messages_of(trace, run.plan)
    alike, sending, spans = nested_alike(trace.ops), communicating(trace.ops), working_spans(trace.spans)
    steps = steps_of(trace)
    kernels = sorted(trace.kernels, key=lambda each: each.start_us)
    windows = device_windows(steps, kernels) if kernels else steps.windows
    if not windows:
        raise SamplesError(
            f"--trace: {file}: holds no operators or kernels of a step; record one with torch.profiler.profile"
        )
    slices, sent = [], []
    for window in windows:
        here = within(messages, window.start_us, window.end_us)
        events = RankEvents(
            ops=trace.ops,
            named=named,
            messages=here,
            starts_us=[each.start_us for each in here],
            latest_ends_us=[*accumulate((each.end_us for each in here), max)],
            spans=[span for span in spans if span.start_us < window.end_us and span.end_us > window.start_us],
            nested_alike=alike,
            communicating=sending,
        )
        slices.append(device_slices(window, kernels, events) if kernels else host_slices(window, events))
        sent.append(here)
    return Cut(rank=rank, slices=slices, messages=sent, step_times_us=[each.duration_us for each in windows])
