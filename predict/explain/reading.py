"""Reads the traces of one or more ranks as a measured step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median

from predict.explain.belonging import require_of_run
from predict.explain.cuts import Cut, cut_steps
from predict.explain.measured import MeasuredStep
from predict.explain.summing import mean_step
from predict.explain.trace.messages import shortest_us
from predict.explain.trace.steps import steps_of
from predict.run.training_run import TrainingRun
from sampling.errors import SamplesError
from sampling.importers.torch_trace import trace_files
from sampling.importers.torch_trace.events import FACTS, Trace, load_trace, without_collections
from sampling.number_text import duration

APART_S = 60.0
"""Seconds between the steps of two traces from which on they are not of the same steps: the clocks of a cluster's nodes agree better."""


def read_measured(path: Path, run: TrainingRun) -> MeasuredStep:
    """The measured step of a trace, or of a folder of the traces of several ranks; SamplesError for what is no trace of a step."""
    cuts: list[Cut] = []
    spans: list[tuple[float, float] | None] = []
    files = trace_files(path, "--trace")
    for place, file in enumerate(files):
        with without_collections():  # neither of what is kept of a trace nor of its slices is anything garbage
            trace = load_trace(file, with_shapes=False)
            rank = place if trace.rank is None else trace.rank
            require_of_run(trace, rank, run, file)
            rule, on_device = steps_of(trace).rule, bool(trace.kernels)
            cuts.append(cut_steps(trace, rank, run, file))
            spans.append(_span_s(trace))
    _require_one_kind(cuts, files)
    _require_same_time(spans, files)
    transfers = _transfers(cuts)
    facts = trace.header.get(FACTS)
    return MeasuredStep(
        ranks=tuple(mean_step(cut, transfers) for cut in sorted(cuts, key=lambda cut: cut.rank)),
        rule=rule,
        on_device=on_device,
        device=trace.devices[0] if trace.devices else "",
        facts=facts if isinstance(facts, dict) else {},
    )


def _require_one_kind(cuts: Sequence[Cut], files: Sequence[Path]) -> None:
    """SamplesError for two traces of one rank, which are not of one run."""
    seen: dict[int, Path] = {}
    for cut, file in zip(cuts, files, strict=True):
        if cut.rank in seen:
            raise SamplesError(
                f"--trace: {seen[cut.rank]} and {file} are both of rank {cut.rank}; keep those of one run"
            )
        seen[cut.rank] = file


def _span_s(trace: Trace) -> tuple[float, float] | None:
    """The first and the last moment of a trace's steps by the clock of its host, in s; None where its header does not tell what time 0 is."""
    base_ns, windows = trace.header.get("baseTimeNanoseconds"), steps_of(trace).windows
    if not isinstance(base_ns, int) or not windows:
        return None
    return base_ns / 1e9 + windows[0].start_us / 1e6, base_ns / 1e9 + windows[-1].end_us / 1e6


def _require_same_time(spans: Sequence[tuple[float, float] | None], files: Sequence[Path]) -> None:
    """SamplesError for traces of two ranks that were not recorded together."""
    known = sorted((span, file) for span, file in zip(spans, files, strict=True) if span)
    for ((_, end_s), before), ((start_s, _), after) in pairwise(known):
        if start_s - end_s > APART_S:
            raise SamplesError(
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
