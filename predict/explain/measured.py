"""The measured ledger: the traces of one or more ranks as µs a step by heading, which add up to the measured step."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from predict.explain.belonging import pipeline_rank, require_of_run
from predict.explain.messages import BARRIER, InFlight, messages_of, shortest_us, within
from predict.explain.naming import FORWARD, Half, Widths, direction, name_operators, widths_of
from predict.explain.steps import device_windows, steps_of
from predict.explain.timeline import (
    IDLE,
    UNNAMED,
    RankEvents,
    Slice,
    communicating,
    device_slices,
    host_slices,
    nested_alike,
    working_spans,
)
from predict.run.training_run import TrainingRun
from predict.step.itemised.breakdown import BUBBLE, P2P, STRAGGLERS
from sampling.call import Call, Phase
from sampling.errors import SamplesError
from sampling.importers.torch_trace import trace_files
from sampling.importers.torch_trace.calls import call_of
from sampling.importers.torch_trace.events import FACTS, Op, Trace, load_trace, without_collections

CallKey = tuple[Call, Phase]


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredMessages:
    """The messages of one heading on a rank, per step: their number, time in flight, transfer alone, and what they add to the step."""

    count: float
    total_us: float
    transfer_us: float
    exposed_us: float

    @property
    def hidden_us(self) -> float:
        return max(0.0, self.total_us - self.exposed_us)

    @property
    def waiting_us(self) -> float:
        """The part of what they add that waits for another rank."""
        return max(0.0, self.exposed_us - self.transfer_us)


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredRank:
    """One rank's mean step: µs by heading, which add up to `step_us`, and what it ran."""

    rank: int
    steps: int
    step_us: float
    headings: Mapping[str, float]
    kernels_us: float
    """Time of kernels; on a CPU, of operators that compute."""
    matched_us: float
    """The part of it whose operator has a name."""
    calls: Mapping[CallKey, tuple[float, float]]
    """Call and direction → (runs, µs) a step."""
    operators: Mapping[str, float]
    """µs a step by operator and by kernel of the trace, for naming the kernel that an operator ran."""
    messages: Mapping[str, MeasuredMessages]
    longest_idle_us: float
    step_times_us: tuple[float, ...] = ()
    halves: Mapping[Half, float] = field(default_factory=dict)
    """µs a step of operators by heading and direction."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredStep:
    """The mean of the ranks that were traced."""

    ranks: tuple[MeasuredRank, ...]
    rule: str
    on_device: bool
    device: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What `predict measure --trace` wrote of its run; empty for other traces."""
    logged_us: float | None = None
    """The step by the run's log."""

    @property
    def step_us(self) -> float:
        return fmean(rank.step_us for rank in self.ranks)

    @property
    def untraced_us(self) -> float | None:
        """The step as it ran without the profiler: by the run's log, or as the trace notes it; None where neither tells."""
        noted = self._noted_steps_us
        return self.logged_us or (median(noted) if noted else None)

    @property
    def _noted_steps_us(self) -> list[float]:
        """The steps without the profiler that the trace notes."""
        noted = self.facts.get("untraced_steps_us")
        return (
            [float(each) for each in noted if isinstance(each, int | float) and each > 0]
            if isinstance(noted, list)
            else []
        )

    @property
    def spread(self) -> float:
        """Standard deviation in log time of the run's steps about one another: of those without the profiler, where the trace notes them,
        else of the traced ones; 0 of fewer than three."""
        logs = [math.log(each) for each in self._noted_steps_us or self.ranks[0].step_times_us]
        return stdev(logs) if len(logs) > 2 else 0.0

    @property
    def headings(self) -> dict[str, float]:
        """µs by heading, the mean over the ranks; they add up to the step."""
        names = dict.fromkeys(name for rank in self.ranks for name in rank.headings)
        return {name: fmean(rank.headings.get(name, 0.0) for rank in self.ranks) for name in names}

    @property
    def halves(self) -> dict[Half, float]:
        """µs by heading and direction, the mean over the ranks."""
        halves = dict.fromkeys(half for rank in self.ranks for half in rank.halves)
        return {half: fmean(rank.halves.get(half, 0.0) for rank in self.ranks) for half in halves}

    @property
    def matched_share(self) -> float:
        """Share of the kernels' time that an operator of ours names."""
        kernels_us = sum(rank.kernels_us for rank in self.ranks)
        return sum(rank.matched_us for rank in self.ranks) / kernels_us if kernels_us else 0.0

    @property
    def sent(self) -> frozenset[str]:
        """Headings of the messages, barriers apart."""
        return frozenset(name for rank in self.ranks for name in rank.messages) - {BARRIER}

    def pipeline_ranks(self, run: TrainingRun) -> tuple[int, ...]:
        """The pipeline rank of each traced rank."""
        return tuple(pipeline_rank(rank.rank, run) for rank in self.ranks)

    def waiting_us(self, heading: str) -> float:
        """The waiting of a heading's messages for other ranks, which one rank alone does not tell."""
        found = self.messages(heading) if len(self.ranks) > 1 else None
        return found.waiting_us if found else 0.0

    def messages(self, heading: str) -> MeasuredMessages | None:
        """The messages of a heading, the mean over the ranks that have them."""
        found = [rank.messages[heading] for rank in self.ranks if heading in rank.messages]
        if not found:
            return None
        return MeasuredMessages(
            count=fmean(each.count for each in found),
            total_us=fmean(each.total_us for each in found),
            transfer_us=fmean(each.transfer_us for each in found),
            exposed_us=fmean(each.exposed_us for each in found),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Cut:
    """One rank's steps: the slices and messages of each."""

    rank: int
    slices: list[list[Slice]]
    messages: list[list[InFlight]]
    step_times_us: list[float]


def read_measured(path: Path, run: TrainingRun) -> MeasuredStep:
    """The measured step of a trace, or of a folder of the traces of several ranks; SamplesError for what is no trace of a step."""
    cuts: list[_Cut] = []
    files = trace_files(path, "--trace")
    for place, file in enumerate(files):
        with without_collections():  # neither of what is kept of a trace nor of its slices is anything garbage
            trace = load_trace(file, with_shapes=False)
            rank = place if trace.rank is None else trace.rank
            require_of_run(trace, rank, run, file)
            rule, on_device = steps_of(trace).rule, bool(trace.kernels)
            cuts.append(_cut(trace, rank, run, file))
    require_one_kind(cuts, files)
    transfers = _transfers(cuts)
    facts = trace.header.get(FACTS)
    return MeasuredStep(
        ranks=tuple(_rank(cut, transfers) for cut in sorted(cuts, key=lambda cut: cut.rank)),
        rule=rule,
        on_device=on_device,
        device=trace.devices[0] if trace.devices else "",
        facts=facts if isinstance(facts, dict) else {},
    )


def require_one_kind(cuts: Sequence[_Cut], files: Sequence[Path]) -> None:
    """SamplesError for two traces of one rank, which are not of one run."""
    seen: dict[int, Path] = {}
    for cut, file in zip(cuts, files, strict=True):
        if cut.rank in seen:
            raise SamplesError(
                f"--trace: {seen[cut.rank]} and {file} are both of rank {cut.rank}; keep those of one run"
            )
        seen[cut.rank] = file


def _cut(trace: Trace, rank: int, run: TrainingRun, file: Path) -> _Cut:
    widths: Widths = widths_of(run.model, run.plan.tp)
    named = name_operators(trace.ops, trace.spans, widths)
    messages = messages_of(trace, run.plan)
    alike, sending, spans = nested_alike(trace.ops), communicating(trace.ops), working_spans(trace.spans)
    steps = steps_of(trace)
    kernels = sorted(trace.kernels, key=lambda each: each.start_us)
    windows = device_windows(steps, kernels) if kernels else steps.windows
    if not windows:
        raise SamplesError(f"{file}: holds no operators or kernels of a step; record one with torch.profiler.profile")
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
    return _Cut(rank=rank, slices=slices, messages=sent, step_times_us=[each.duration_us for each in windows])


def _transfers(cuts: Sequence[_Cut]) -> dict[str, float]:
    """Heading → transfer of all its messages in a step, in µs, by the shortest of the ranks; the median over the steps."""
    found: dict[str, list[float]] = defaultdict(list)
    for step in range(min(len(cut.messages) for cut in cuts)):
        headings = dict.fromkeys(each.heading for cut in cuts for each in cut.messages[step])
        for heading in headings:
            of_ranks = [[each for each in cut.messages[step] if each.heading == heading] for cut in cuts]
            found[heading].append(sum(shortest_us(of_ranks)))
    return {heading: median(sums) for heading, sums in found.items()}


def _rank(cut: _Cut, transfers: Mapping[str, float]) -> MeasuredRank:
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
    )


def _count(calls: dict[CallKey, tuple[float, float]], each: Slice, steps: int, *, again: bool) -> None:
    """Count a slice of a call; `again` says that its run was counted, by another kernel, before a pause or by the operator around it. Runs
    are of forward operators: a backward has none that is a call."""
    named = each.named
    assert named is not None and named.call is not None and named.phase is not None
    runs, time_us = calls.get((named.call, named.phase), (0.0, 0.0))
    calls[named.call, named.phase] = (runs + (0 if again else 1 / steps), time_us + each.duration_us / steps)


def _messages(cut: _Cut, headings: Mapping[str, float], transfers: Mapping[str, float]) -> dict[str, MeasuredMessages]:
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
