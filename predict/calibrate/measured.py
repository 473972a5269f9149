"""Measured runs as a user gives them, each config with its step, and those that a calibration file holds from before."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median

from predict.calibrate.fit import MeasuredRun
from predict.layers.run_json import load_run
from predict.measure.system_noise import SPREAD_LIMIT
from predict.own_runs.belonging import unit_mistake
from predict.own_runs.measured_step import measured_step, noise_warning
from predict.own_runs.repeats import are_repeats
from predict.run.calibration.terms import MeasuredTime, Posterior
from predict.run.training_run import TrainingRun
from sampling.errors import UNREADABLE, UserError
from sampling.files.faults import counted
from sampling.number_text import duration

Timed = tuple[TrainingRun, MeasuredTime]


def given_times(
    runs: Sequence[TrainingRun], given: Sequence[str], tell: Callable[[str], None] = lambda _: None
) -> list[Timed]:
    """Each run with the step that was given for it; a noisy one is told of. UserError lists every one that cannot be read, or is not of its run."""
    if len(runs) != len(given):
        raise UserError(
            f"--measured: {counted(len(given), 'time')} for {counted(len(runs), 'config')}; give one for each, in their order"
        )
    found: list[Timed] = []
    faults = []
    for run, text in zip(runs, given, strict=True):
        try:
            step = measured_step(text, run)
        except UserError as error:
            faults.append(str(error))
        else:
            if step.noisy:
                tell(f"--measured: {noise_warning(step)}; until then it moves the terms little")
            found.append(
                (run, MeasuredTime(step_us=step.step_us, source=step.source, date=step.date, noise=step.noise))
            )
    if faults:
        raise UserError("\n".join(faults))
    return found


def held_times(known: Posterior, place: Path) -> list[Timed]:
    """The runs that a calibration file holds, with each of their times. UserError where one cannot be predicted again."""
    found: list[Timed] = []
    for one in known.runs:
        try:
            run = load_run(one.described)
        except UNREADABLE:
            raise UserError(
                f"{place}: its run {one.run} is not described as this version predicts it, so nothing can be added to it; take it back with "
                f"`predict calibrate --forget {place}`, or give another --output"
            ) from None
        found += [(run, time) for time in one.times]
    return found


def measured_runs(timed: Iterable[Timed]) -> list[MeasuredRun]:
    """Equal runs as one with the median of their times, each time once; noisy ones count where there is no other. UserError for repeats that differ too much."""
    grouped: list[tuple[TrainingRun, list[MeasuredTime]]] = []
    for run, time in timed:
        times = next((times for known, times in grouped if known == run), None)
        if times is None:
            grouped.append((run, [time]))
        elif not any(_same(time, known) for known in times):
            times.append(time)
    kept = [(run, times, _quiet(times)) for run, times in grouped]
    if faults := [*_unlike_repeats((run, quiet) for run, _, quiet in kept)]:
        raise UserError("\n".join(faults))
    return [
        MeasuredRun(
            name=run.name,
            runs=(run,),
            measured_us=median(each.step_us for each in quiet),
            times=tuple(times),
            noise=math.hypot(*(each.noise for each in quiet)) / len(quiet),
        )
        for run, times, quiet in kept
    ]


def _quiet(times: list[MeasuredTime]) -> list[MeasuredTime]:
    """The times that are not noisy; all where all are."""
    return [each for each in times if each.noise <= SPREAD_LIMIT] or times


def _same(one: MeasuredTime, other: MeasuredTime) -> bool:
    """Whether two are one measurement: 14.9s and 14900ms are, and a log under another name."""
    return one.date == other.date and math.isclose(one.step_us, other.step_us)


def _unlike_repeats(grouped: Iterable[tuple[TrainingRun, list[MeasuredTime]]]) -> Iterator[str]:
    for run, times in grouped:
        each_us = [time.step_us for time in times]
        if not are_repeats(each_us):
            told = ", ".join(f"{duration(time.step_us)} ({time.source})" for time in times)
            unit = unit_mistake(max(each_us) / min(each_us))
            mistaken = f": one is about {unit} another, check the unit" if unit else ""
            yield (
                f"--measured: {run.name}: {told} for one config differ by more than repeats do{mistaken}; leave out what is wrong, or, where the "
                "file holds it from before, start anew with another --output"
            )
