"""Reads the traces of one or more ranks as a measured step."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from statistics import fmean, median

from predict.measured_runs.explain import timeline
from predict.measured_runs.explain.measured import CallKey, MeasuredMessages, MeasuredRank, TracedStep
from predict.measured_runs.explain.messages import BARRIER, InFlight, messages_of, shortest_us, within
from predict.measured_runs.explain.naming import FORWARD, Half, Widths, direction, name_operators, widths_of
from predict.measured_runs.explain.trace_matches_config import require_of_run
from predict.measured_runs.traces import files_of_traces, traces_in
from predict.run.training_run import TrainingRun
from predict.step.breakdown import BUBBLE, P2P, STRAGGLERS
from sampling.errors import UserError, naming
from sampling.importers.torch_trace.calls import call_of
from sampling.importers.torch_trace.events import FACTS, Op, Trace, without_collections
from sampling.number_text import duration

# One rank's trace cut into steps: the slices and messages of each.


@dataclass(frozen=True, kw_only=True, slots=True)
class Cut:
    """One rank's steps: the slices and messages of each."""

    rank: int
    slices: list[list[timeline.Slice]]
    messages: list[list[InFlight]]
    step_times_us: list[float]


def cut_steps(trace: Trace, rank: int, run: TrainingRun, file: Path) -> Cut:
    """The steps of a rank's trace; UserError for one without any."""
    widths: Widths = widths_of(run.model, run.plan.tp)
    named = name_operators(trace.ops, trace.spans, widths)
    messages = messages_of(trace, run.plan)
    alike, sending, spans = (
        timeline.nested_alike(trace.ops),
        timeline.communicating(trace.ops),
        timeline.working_spans(trace.spans),
    )
    steps = timeline.steps_of(trace)
    kernels = sorted(trace.kernels, key=lambda each: each.start_us)
    windows = timeline.device_windows(steps, kernels) if kernels else steps.windows
    if not windows:
        raise UserError(
            f"--trace: {file}: holds no operators or kernels of a step; record one with torch.profiler.profile"
        )
    slices, sent = [], []
    for window in windows:
        here = within(messages, window.start_us, window.end_us)
        events = timeline.RankEvents(
            ops=trace.ops,
            named=named,
            messages=here,
            starts_us=[each.start_us for each in here],
            latest_ends_us=[*accumulate((each.end_us for each in here), max)],
            spans=[span for span in spans if span.start_us < window.end_us and span.end_us > window.start_us],
            nested_alike=alike,
            communicating=sending,
        )
        slices.append(
            timeline.device_slices(window, kernels, events) if kernels else timeline.host_slices(window, events)
        )
        sent.append(here)
    return Cut(rank=rank, slices=slices, messages=sent, step_times_us=[each.duration_us for each in windows])


# A rank's mean step: the slices and messages of its steps summed by heading, by call and by operator.


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
            matched_us += each.duration_us / steps * (each.heading != timeline.UNNAMED)
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
            (each.duration_us for step in cut.slices for each in step if each.heading == timeline.IDLE), default=0.0
        ),
        step_times_us=tuple(cut.step_times_us),
        halves=dict(halves),
        splits_backward=timeline.splits_backward(one for step in cut.slices for one in step),
        forwards_first=timeline.runs_forwards_first(cut.slices),
    )


def _count(calls: dict[CallKey, tuple[float, float]], each: timeline.Slice, steps: int, *, again: bool) -> None:
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


APART_S = 60.0
"""Seconds between the steps of two traces from which on they are not of the same steps: the clocks of a cluster's nodes agree better."""


def read_measured(path: Path, run: TrainingRun) -> TracedStep:
    """The measured step of a trace, or of a folder of the traces of several ranks; UserError for anything but a trace of a step."""
    cuts: list[Cut] = []
    spans: list[tuple[float, float] | None] = []
    files: list[Path] = []
    with naming("--trace"):
        found = files_of_traces(path)
    for file in found:
        with without_collections():  # neither of what is kept of a trace nor of its slices is anything garbage
            for trace in _traces(file):
                rank = len(files) if trace.rank is None else trace.rank
                require_of_run(trace, rank, run, file)
                rule, on_device = timeline.steps_of(trace).rule, bool(trace.kernels)
                cuts.append(cut_steps(trace, rank, run, file))
                spans.append(_span_s(trace))
                files.append(file)
    if not cuts:
        raise UserError(f"--trace: {path} holds no kernels; record whole steps")
    _require_one_kind(cuts, files)
    _require_same_time(spans, files)
    transfers = _transfers(cuts)
    facts = trace.header.get(FACTS)
    return TracedStep(
        ranks=tuple(mean_step(cut, transfers) for cut in sorted(cuts, key=lambda cut: cut.rank)),
        rule=rule,
        on_device=on_device,
        device=trace.devices[0] if trace.devices else "",
        facts=facts if isinstance(facts, dict) else {},
    )


def _traces(file: Path) -> Iterator[Trace]:
    """The traces in a file; UserError, which names the option, where it cannot be read."""
    with naming("--trace"):
        yield from traces_in(file)


def _require_one_kind(cuts: Sequence[Cut], files: Sequence[Path]) -> None:
    """UserError for two traces of one rank, which are not of one run."""
    seen: dict[int, Path] = {}
    for cut, file in zip(cuts, files, strict=True):
        if cut.rank in seen:
            raise UserError(f"--trace: {seen[cut.rank]} and {file} are both of rank {cut.rank}; keep those of one run")
        seen[cut.rank] = file


def _span_s(trace: Trace) -> tuple[float, float] | None:
    """The first and the last moment of a trace's steps by the clock of its host, in s; None where its header does not
    show what time 0 is."""
    base_ns, windows = trace.header.get("baseTimeNanoseconds"), timeline.steps_of(trace).windows
    if not isinstance(base_ns, int) or not windows:
        return None
    return base_ns / 1e9 + windows[0].start_us / 1e6, base_ns / 1e9 + windows[-1].end_us / 1e6


def _require_same_time(spans: Sequence[tuple[float, float] | None], files: Sequence[Path]) -> None:
    """UserError for traces of two ranks that were not recorded together."""
    known = sorted((span, file) for span, file in zip(spans, files, strict=True) if span)
    for ((_, end_s), before), ((start_s, _), after) in pairwise(known):
        if start_s - end_s > APART_S:
            raise UserError(
                f"--trace: {before} and {after} are of steps {duration(1e6 * (start_s - end_s))} apart; keep those of the same steps, or give one "
                "file"
            )


def _transfers(cuts: Sequence[Cut]) -> dict[str, float]:
    """Heading → transfer of all its messages in a step, in µs, by the shortest of the ranks; the median over the steps."""
    found: dict[str, list[float]] = defaultdict(list)
    for step in range(min(len(cut.messages) for cut in cuts)):
        headings = dict.fromkeys(each.heading for cut in cuts for each in cut.messages[step])
        for heading in headings:
            of_ranks = [[each for each in cut.messages[step] if each.heading == heading] for cut in cuts]
            found[heading].append(sum(shortest_us(of_ranks)))
    return {heading: median(sums) for heading, sums in found.items()}
