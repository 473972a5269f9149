"""Steps, rates and kernels of a log or a trace alone, for stderr beside its config and as JSON."""

from collections.abc import Iterator
from statistics import median
from typing import Any

from predict.measured_runs.infer import Inferred
from predict.measured_runs.served_log import ServedLog
from predict.measured_runs.steady_state import RunLog, steady
from predict.measured_runs.traces.summary import TraceSummary
from predict.serialise import each_picked, picked
from sampling.files.faults import counted
from sampling.number_text import duration, percent, significant

MOST_CLASSES = 6
"""Classes of kernels that are named, those that take longest."""


def inferred_json(found: Inferred) -> dict[str, Any]:
    """The keys that `predict import-config LOG --json` adds for a log or a trace."""
    return picked(found, "uncertain missing") | {"measured": _measured_json(found)}


def _measured_json(found: Inferred) -> Any:
    measured = found.measured
    if isinstance(measured, RunLog):
        steps = {"step_us": steady_us(measured), "steps": len(measured.steps)}
        return {"framework": measured.framework, **steps, "peak_bytes": measured.peak_bytes}
    if isinstance(measured, ServedLog):
        return picked(measured, "engine figures intervals")
    return each_picked(measured or (), "* idle_us busy_share classified_share launch_bound")


def steady_us(log: RunLog) -> float | None:
    """The median of a log's steady steps; None where its lines state rates alone, which a batch is needed for."""
    known = [step.time_us for step in steady(log.steps) if step.time_us]
    return median(known) if known else None


def inferred_lines(found: Inferred) -> Iterator[str]:
    """Lines on what was measured, what is uncertain and what is missing."""
    measured = found.measured
    if isinstance(measured, RunLog):
        step_us = steady_us(measured)
        kept = counted(len(measured.steps), "timed line")
        what = f"{duration(step_us)} a step, steady" if step_us else "rates, without a time of a step"
        yield f"measured: {what}, of {kept} ({measured.framework})"
    elif isinstance(measured, ServedLog):
        yield from _of_server(measured)
    else:
        for each in measured or ():
            yield from _of_rank(each)
    yield from (f"uncertain: {each}" for each in found.uncertain)
    yield from (f"missing: {each}" for each in found.missing)


def _of_server(log: ServedLog) -> Iterator[str]:
    if log.figures:
        named = ", ".join(f"{name} {significant(value)}" for name, value in log.figures.items())
        yield f"measured: {named} ({log.engine})"
    steps = [each.step_us for each in log.intervals if each.step_us]
    if steps:
        yield f"measured: {duration(median(steps))} a decode step, {counted(len(steps), 'interval')} without prompts ({log.engine})"
    elif log.intervals:
        yield f"measured: {counted(len(log.intervals), 'interval')} of rates ({log.engine})"


def _of_rank(rank: TraceSummary) -> Iterator[str]:
    bound = ", bound by launches" if rank.launch_bound else ""
    yield (
        f"measured: rank {rank.rank}{f' on {rank.device}' if rank.device else ''}: busy {duration(rank.busy_us)} of {duration(rank.span_us)} "
        f"({percent(rank.busy_share)}){bound}, {counted(rank.kernels, 'kernel')}"
    )
    named = ", ".join(f"{name} {duration(time_us)}" for name, time_us in [*rank.by_class.items()][:MOST_CLASSES])
    yield f"  {named}"
