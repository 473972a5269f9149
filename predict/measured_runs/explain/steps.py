"""Steps of a trace: the windows of time in which each one ran."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from sampling.importers.torch_trace.events import Kernel, Op, Span, Trace

STEP = "ProfilerStep#"
"""Beginning of the span that torch's profiler records around each `prof.step()`."""
UPDATE = "Optimizer.step#"


@dataclass(frozen=True, slots=True)
class Window:
    """Time from the start of a step to that of the next, in µs; `thread` is the one that ran it, None where the trace does not say."""

    start_us: float
    end_us: float
    thread: object = None

    @property
    def duration_us(self) -> float:
        return self.end_us - self.start_us


@dataclass(frozen=True, kw_only=True, slots=True)
class Steps:
    """The windows of a trace on the host, and the rule by which they were found."""

    windows: tuple[Window, ...]
    rule: str


def steps_of(trace: Trace) -> Steps:
    """The steps by the profiler's annotations; without them from one optimizer's step to the next; else the trace as one step."""
    marked = sorted((span for span in trace.spans if span.name.startswith(STEP)), key=lambda span: span.start_us)
    if marked:
        windows = tuple(Window(span.start_us, span.end_us, span.thread) for span in marked)
        return Steps(windows=windows, rule=f"{len(windows)} ProfilerStep annotations")
    updates = _updates(trace.spans)
    if len(updates) > 1:
        pairs = itertools.pairwise(updates)
        windows = tuple(Window(before.end_us, after.end_us, after.thread) for before, after in pairs)
        return Steps(windows=windows, rule=f"from one optimizer step's end to the next, {len(windows)} times")
    timed: list[Op | Kernel] = [*trace.ops, *trace.kernels]
    if not timed:
        return Steps(windows=(), rule="the trace is empty")
    start, end = min(each.start_us for each in timed), max(each.start_us + each.duration_us for each in timed)
    threads = [op.thread for op in trace.ops]
    busiest = max(set(threads), key=threads.count) if threads else None
    return Steps(windows=(Window(start, end, busiest),), rule="no annotation of steps: the whole trace as one")


def _updates(spans: Sequence[Span]) -> list[Span]:
    """The last optimizer's step of each step: of several that follow one another within a step, the last."""
    found = sorted((span for span in spans if span.name.startswith(UPDATE)), key=lambda span: span.start_us)
    if len(found) < 3:
        return found
    gaps = [after.start_us - before.end_us for before, after in itertools.pairwise(found)]
    between = max(gaps) / 2
    return [span for span, gap in zip(found, [*gaps, between], strict=True) if gap >= between]


def device_windows(steps: Steps, kernels: Sequence[Kernel]) -> tuple[Window, ...]:
    """The windows in which a device ran what the host launched in each step; kernels whose launch is unknown count by their start. A
    window ends where the next begins; the last one as long after its kernels as the others do in the mean, since no next one is traced."""
    ordered = sorted(kernels, key=lambda each: each.start_us)
    firsts: list[float] = []
    lasts: list[float] = []
    for window in steps.windows:
        inside = [each for each in ordered if window.start_us <= _launched(each) < window.end_us]
        if inside:
            firsts.append(inside[0].start_us)
            lasts.append(max(each.start_us + each.duration_us for each in inside))
    gaps = [start - end for end, start in zip(lasts, firsts[1:], strict=False)]
    ends = [*firsts[1:], *(end + (max(0.0, fmean(gaps)) if gaps else 0.0) for end in lasts[-1:])]
    return tuple(Window(start, end) for start, end in zip(firsts, ends, strict=True) if end > start)


def _launched(kernel: Kernel) -> float:
    return kernel.start_us if kernel.launched_us is None else kernel.launched_us
