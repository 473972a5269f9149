"""Timeline: a step's time on one rank, cut into slices that each belong to one cause; together they are the step."""

import itertools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from predict.measured_runs.explain.messages import BARRIER, InFlight, is_collective
from predict.measured_runs.explain.naming import FORWARD, OPTIMIZER_SPANS, Named, direction, name_of_kernel
from predict.step.breakdown import DP, HOST, OPTIMIZER
from sampling.importers.torch_trace.events import Kernel, Op, Span, Trace
from sampling.operators.gemm import Gemm

# Steps of a trace: the windows of time in which each one ran.

STEP = "ProfilerStep#"
"""Beginning of the span that torch's profiler records around each `prof.step()`."""
UPDATE = "Optimizer.step#"


@dataclass(frozen=True, slots=True)
class Window:
    """Time from the start of a step to the start of the next, in µs; `thread` is the one that ran it, None where the trace does not say."""

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


DATA, IDLE, UNNAMED = "data_wait", "idle", "unnamed"
"""Headings of what no prediction has: waiting for the next batch, standing still, and kernels that no operator names."""
LOADER = ("enumerate(DataLoader)", "dataloader")
COMMUNICATING = ("c10d::", "_c10d_functional::", "record_param_comms", "c10d_functional::")
"""Beginnings of operators that start or await a collective."""
STILL_SHARE, STILL_US = 0.01, 2_000.0
"""A stretch without any operator or kernel is standing still from this share of a step on, and from this many µs."""
VIEWS = frozenset(
    f"aten::{name}"
    for name in (
        *("t", "transpose", "view", "reshape", "as_strided", "detach", "slice", "narrow", "expand", "unsqueeze"),
        *("squeeze", "permute", "select", "split", "chunk", "alias", "resolve_conj", "result_type", "to", "empty"),
        *("empty_like", "empty_strided", "_unsafe_view", "unbind", "flatten", "contiguous", "lift_fresh", "view_as"),
        *("item", "_local_scalar_dense", "linear", "matmul", "detach_", "type_as", "is_nonzero", "unflatten"),
    )
)
"""Operators that compute nothing: what they take is the host's."""


@dataclass(frozen=True, slots=True)
class Slice:
    """A stretch of a step with one cause, in µs; `op` is the operator that ran or was launched, None for none."""

    heading: str
    start_us: float
    end_us: float
    named: Named | None = None
    op: Op | None = None
    is_kernel: bool = False
    kernel: str = ""
    """The name of a device's kernel."""

    @property
    def duration_us(self) -> float:
        return self.end_us - self.start_us


@dataclass(frozen=True, kw_only=True, slots=True)
class RankEvents:
    """Events that a step is cut by: named operators, messages, and the spans of the optimizer and of the data loader."""

    ops: Sequence[Op]
    """Operators in the order of their starts."""
    named: Mapping[Op, Named]
    messages: Sequence[InFlight]
    """Messages in the order of their starts."""
    starts_us: Sequence[float]
    """The start of each message."""
    latest_ends_us: Sequence[float]
    """The latest end of each message and those before it."""
    spans: Sequence[Span]
    """Spans of the optimizer and the data loader alone."""
    nested_alike: frozenset[Op]
    """Operators that only dispatch another of the same name, as those of distributed tensors do."""
    communicating: frozenset[Op] = frozenset()
    """Operators that start or await a collective, and those within them."""


def working_spans(spans: Iterable[Span]) -> list[Span]:
    """The spans that say why no operator runs within them."""
    return [span for span in spans if span.name.startswith((*LOADER, *OPTIMIZER_SPANS))]


def nested_alike(ops: Iterable[Op]) -> frozenset[Op]:
    """The operators above another of the same name in the same thread."""
    found: set[Op] = set()
    for op in ops:
        above = op.parent
        while above is not None:
            if above.name == op.name:
                found.add(above)
            above = above.parent
    return frozenset(found)


def communicating(ops: Iterable[Op]) -> frozenset[Op]:
    """The operators that start or await a collective, and those within them; parents come first."""
    found: set[Op] = set()
    for op in ops:
        if op.parent in found or op.name.startswith(COMMUNICATING):
            found.add(op)
    return frozenset(found)


def host_slices(window: Window, events: RankEvents) -> list[Slice]:
    """A step on a rank without a device: each moment goes to the innermost operator of the step's thread, and where none runs to the
    message that ends the pause, to the data loader, or to the host."""
    first, last = (bisect_left(events.ops, at, key=lambda op: op.start_us) for at in (window.start_us, window.end_us))
    ops = [op for op in events.ops[first:last] if op.thread == window.thread]
    still_us = _still_us(window)
    slices: list[Slice] = []
    for start, end, op in _innermost(ops, window):
        if op is None:
            slices += _pause(start, end, events, still_us)
        else:
            found = _of_op(start, end, op, events)
            # an operator that only dispatches may await a message, as a hook of the backward does
            slices += _pause(start, end, events, math.inf) if found.heading == HOST else [found]
    return slices


def _innermost(ops: Sequence[Op], window: Window) -> Iterator[tuple[float, float, Op | None]]:
    """The window cut at every start and end of an operator, each piece with the innermost one."""
    at = window.start_us
    running: list[Op] = []
    for op in [*ops, None]:
        start = min(op.start_us, window.end_us) if op else window.end_us
        while running and running[-1].end_us <= start:
            inner = running.pop()
            if inner.end_us > at:
                yield at, inner.end_us, inner
                at = inner.end_us
        if start > at:
            yield at, start, running[-1] if running else None
            at = start
        if op:
            running.append(op)


def _of_op(start: float, end: float, op: Op, events: RankEvents) -> Slice:
    if op in events.communicating:
        heading = BARRIER if "barrier" in op.name else _awaited(start, end, events) or _usual(events.messages)
        return Slice(heading, start, end, op=op)
    named = events.named.get(op)
    if named is not None and named.heading == OPTIMIZER:
        return Slice(OPTIMIZER, start, end, named, op, is_kernel=True)
    if named is not None and named.heading == DP:
        return Slice(DP, start, end, named, op)
    if not op.name.startswith("aten::") or op.name in VIEWS or op in events.nested_alike:
        return Slice(HOST, start, end, named, op)
    return Slice(named.heading if named else UNNAMED, start, end, named, op, is_kernel=True)


def _usual(messages: Sequence[InFlight]) -> str:
    """The heading of most messages other than barriers."""
    headings = [each.heading for each in messages if each.heading != BARRIER]
    return max(set(headings), key=headings.count) if headings else DP


def _awaited(start: float, end: float, events: RankEvents) -> str:
    """The heading of the last message to end within a stretch, or else of one in flight at its end; '' for none."""
    near = within_flight(events, start, end)
    ended = [each for each in near if start <= each.end_us <= end]
    flying = [each for each in near if each.start_us < end < each.end_us]
    chosen = max(ended, key=lambda each: each.end_us) if ended else flying[-1] if flying else None
    return chosen.heading if chosen else ""


def _pause(start: float, end: float, events: RankEvents, still_us: float) -> Iterator[Slice]:
    """A stretch in which no operator runs: awaiting a message up to its end, and after it the host's."""
    awaited = [each for each in within_flight(events, start, end) if each.end_us <= end]
    if awaited:
        last = max(awaited, key=lambda each: each.end_us)
        begin = max(start, last.start_us)
        if begin > start:
            yield _without_work(start, begin, events, still_us)
        yield Slice(last.heading, begin, last.end_us)
        start = last.end_us
    if end > start:
        yield _without_work(start, end, events, still_us)


def _still_us(window: Window) -> float:
    """Length from which on a stretch without work is standing still."""
    return max(STILL_US, STILL_SHARE * window.duration_us)


def _without_work(start: float, end: float, events: RankEvents, still_us: float) -> Slice:
    """The heading of a stretch without operators or messages, by the span that it lies in and by its length."""
    middle = (start + end) / 2
    if inside := [span.name for span in events.spans if span.start_us <= middle < span.end_us]:
        return Slice(DATA if any(name.startswith(LOADER) for name in inside) else OPTIMIZER, start, end)
    return Slice(IDLE if end - start >= still_us else HOST, start, end)


def device_slices(window: Window, kernels: Sequence[Kernel], events: RankEvents) -> list[Slice]:
    """A step on a device: compute by its kernel, communication where no compute runs, and pauses by why nothing ran.

    `kernels` are in the order of their starts. A pause is the host's where the next kernel had not been launched before it began.
    """
    compute = [each for each in kernels if not is_collective(each)]
    slices: list[Slice] = []
    at = window.start_us
    first = bisect_left(compute, window.start_us, key=lambda each: each.start_us)
    for kernel in compute[first : bisect_right(compute, window.end_us, key=lambda each: each.start_us)]:
        start, end = kernel.start_us, min(kernel.start_us + kernel.duration_us, window.end_us)
        if start > at:
            slices += _device_pause(at, start, kernel, events, _still_us(window))
            at = start
        if end > at:
            named = (events.named.get(kernel.op) if kernel.op else None) or name_of_kernel(kernel.name)
            heading = named.heading if named else UNNAMED
            slices.append(Slice(heading, at, end, named, kernel.op, is_kernel=True, kernel=kernel.name))
            at = end
    if window.end_us > at:
        slices += _device_pause(at, window.end_us, None, events, _still_us(window))
    return slices


def _device_pause(
    start: float, end: float, following: Kernel | None, events: RankEvents, still_us: float
) -> Iterator[Slice]:
    """A stretch without compute: messages where they are in flight, and the rest by the next kernel's launch."""
    at = start
    for message in within_flight(events, start, end):
        begin, stop = max(at, message.start_us), min(end, message.end_us)
        if begin > at:
            yield _device_idle(at, begin, following, events, still_us)
        if stop > max(at, begin):
            yield Slice(message.heading, max(at, begin), stop)
        at = max(at, stop)
    if end > at:
        yield _device_idle(at, end, following, events, still_us)


def _device_idle(start: float, end: float, following: Kernel | None, events: RankEvents, still_us: float) -> Slice:
    """The heading of a stretch without kernels or messages; a short one is the launch's, early or late."""
    launched = following.launched_us if following else None
    late = launched is None or launched > start
    middle = (start + end) / 2
    if any(span.name.startswith(LOADER) and span.start_us <= middle < span.end_us for span in events.spans):
        return Slice(DATA, start, end)
    return Slice(HOST if late or end - start < still_us else IDLE, start, end)


def within_flight(events: RankEvents, start_us: float, end_us: float) -> list[InFlight]:
    """The messages that are in flight at some time of a stretch."""
    first = bisect_right(events.latest_ends_us, start_us)  # all before it have ended
    last = bisect_left(events.starts_us, end_us, first) if first < len(events.starts_us) else first
    return [each for each in events.messages[first:last] if each.end_us > start_us]


# Forwards first: whether a pipeline rank runs all its forwards before its first backward, as AFAB (GPipe) does and 1F1B does not.

LEAST = 8
"""Forward products of a step from which on their place is judged."""
ALL, SOME = 0.98, 0.9
"""Share of a step's forward products before its first backward from which on all come first, and up to which they do not. A rank that has
one of many microbatches left lies between them."""


def runs_forwards_first(steps: Iterable[Iterable[Slice]]) -> bool | None:
    """Whether all forwards of each step come first, by its matrix products in their order; None where the steps do not show."""
    shares = [_share(list(_forwards(step))) for step in steps]
    known = [share for share in shares if share is not None]
    if not known or len(known) < len(shares):
        return None
    if min(known) >= ALL:
        return True
    return False if max(known) <= SOME else None


def _share(forwards: list[bool]) -> float | None:
    """Share of the forward products that come before the first backward one; None where there are too few of them, or no backward."""
    if sum(forwards) < LEAST or all(forwards):
        return None
    return forwards.index(False) / sum(forwards)


def _forwards(slices: Iterable[Slice]) -> Iterator[bool]:
    """Whether each product, in their order, belongs to a forward."""
    last: Op | None = None
    for each in slices:
        named, op = each.named, each.op
        if op is None or op is last or named is None or named.phase is None or not isinstance(named.call, Gemm):
            continue
        last = op
        yield direction(named.phase) == FORWARD


# Split backward: whether a rank computes the gradients of weights apart from those of inputs, as zero-bubble schedules do.
#
# The backward of a product y = x·w is two: dx = dy·w and dw = dyᵀ·x. Under an ordinary backward they alternate, layer by layer; under a split
# one those of all the layers of a stage follow one another. Their shapes distinguish them: dw sums over the tokens.

LEAST_SPLIT = 40
"""Products from which on their order is judged."""
TOGETHER, ALTERNATING = 0.9, 0.1
"""Share of neighbours of one kind from which on a backward is split, and up to which it is not. Between them lie, for example, gradients of
weights that a framework puts off by one layer."""


def splits_backward(slices: Iterable[Slice]) -> bool | None:
    """Whether the backward of a rank's slices, in their order, is split; None where they do not show."""
    kinds = [*_kinds(slices)]
    if len(kinds) < LEAST_SPLIT:
        return None
    alike = sum(one == other for one, other in pairwise(kinds)) / (len(kinds) - 1)
    if ALTERNATING < alike < TOGETHER:
        return None
    return alike >= TOGETHER


def _kinds(slices: Iterable[Slice]) -> Iterator[bool]:
    """Whether each product of a backward is the gradient of weights; without those whose shapes do not show."""
    last: Op | None = None
    for each in slices:
        named, op = each.named, each.op
        if op is None or op is last or named is None or not isinstance(named.call, Gemm) or named.phase != "backward":
            continue
        last = op
        first: list[int] = next((dims for dims in op.dims if dims), [])
        if first.count(named.call.m) == 1 and len(first) == 2:
            yield first[1] == named.call.m
