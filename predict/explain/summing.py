"""A rank's mean step: the slices and messages of its steps summed by heading, by call and by operator."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from statistics import fmean

from predict.explain.cuts import Cut
from predict.explain.measured import CallKey, MeasuredMessages, MeasuredRank
from predict.explain.trace.forwards_first import runs_forwards_first
from predict.explain.trace.messages import BARRIER, InFlight
from predict.explain.trace.naming import FORWARD, Half, direction
from predict.explain.trace.split_backward import splits_backward
from predict.explain.trace.timeline import IDLE, UNNAMED, Slice
from predict.step.breakdown import BUBBLE, P2P, STRAGGLERS
from sampling.importers.torch_trace.calls import call_of
from sampling.importers.torch_trace.events import Op


def mean_step(cut: Cut, transfers: Mapping[str, float]) -> MeasuredRank:
    """The mean of a rank's steps. `transfers` are the µs of each heading's messages without waiting."""
    steps = len(cut.slices)
    headings: dict[str, float] = defaultdict(float)
    operators: dict[str, float] = defaultdict(float)
    halves: dict[Half, float] = defaultdict(float)
    calls: dict[CallKey, tuple[float, float]] = {}
    counted: set[Op] = set()
    kernels_us = matched_us = 0.0
    for each in (one for step in cut.slices for one in step):
        headings[each.heading] += each.duration_us / steps
        if each.op is not None:
            operators[each.op.name] += each.duration_us / steps
        if each.kernel:
            operators[each.kernel] += each.duration_us / steps
        if each.is_kernel:
            kernels_us += each.duration_us / steps
            matched_us += each.duration_us / steps * (each.heading != UNNAMED)
            if each.named:
                way = direction(each.named.phase) if each.named.phase else FORWARD
                halves[each.heading, way] += each.duration_us / steps
        if each.named and each.named.call is not None and each.named.phase is not None:
            again = each.op is None or each.op in counted or call_of(each.op) != each.named.call
            _count(calls, each, steps, again=again)
            counted |= {each.op} if each.op else set()
    messages = _messages(cut, headings, transfers)
    _name_waiting(headings, messages)
    return MeasuredRank(
        rank=cut.rank,
        steps=steps,
        step_us=fmean(cut.step_times_us),
        headings=dict(headings),
        kernels_us=kernels_us,
        matched_us=matched_us,
        calls=calls,
        operators=dict(operators),
        messages=messages,
        longest_idle_us=max(
            (each.duration_us for step in cut.slices for each in step if each.heading == IDLE), default=0.0
        ),
        step_times_us=tuple(cut.step_times_us),
        halves=dict(halves),
        splits_backward=splits_backward(one for step in cut.slices for one in step),
        forwards_first=runs_forwards_first(cut.slices),
    )


def _count(calls: dict[CallKey, tuple[float, float]], each: Slice, steps: int, *, again: bool) -> None:
    """Count a slice of a call; `again` says that its run was counted, by another kernel, before a pause or by the operator around it. Runs
    are of forward operators: a backward has none that is a call."""
    named = each.named
    assert named is not None and named.call is not None and named.phase is not None
    runs, time_us = calls.get((named.call, named.phase), (0.0, 0.0))
    calls[named.call, named.phase] = (runs + (0 if again else 1 / steps), time_us + each.duration_us / steps)


def _messages(cut: Cut, headings: Mapping[str, float], transfers: Mapping[str, float]) -> dict[str, MeasuredMessages]:
    found: dict[str, list[InFlight]] = defaultdict(list)
    for message in (each for step in cut.messages for each in step):
        found[message.heading].append(message)
    steps = len(cut.messages)
    return {
        heading: MeasuredMessages(
            count=len(sent) / steps,
            total_us=sum(each.duration_us for each in sent) / steps,
            transfer_us=transfers.get(heading, 0.0),
            exposed_us=headings.get(heading, 0.0),
        )
        for heading, sent in found.items()
    }


def _name_waiting(headings: dict[str, float], messages: Mapping[str, MeasuredMessages]) -> None:
    """Move what sends between pipeline ranks wait for one another to the bubble, and barriers to it or to the stragglers."""
    if P2P in messages:
        waited_us = messages[P2P].waiting_us
        headings[P2P] = headings.get(P2P, 0.0) - waited_us
        headings[BUBBLE] = waited_us
    if BARRIER in headings:
        at_the_end = BUBBLE if P2P in messages else STRAGGLERS
        headings[at_the_end] = headings.get(at_the_end, 0.0) + headings.pop(BARRIER)
