"""The measured step of a run as a user gives it: `412ms`, `3.2s`, a file of `predict measure --json`, or a training log."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

from predict.interval import independent_causes
from predict.layers.run_json import load_run
from predict.measured_runs.fit_terms import MeasuredRun
from predict.measured_runs.log_matches_config import SLACK, misfits, not_steady, unit_mistake
from predict.measured_runs.logs import above_zero, read_log, states_steps
from predict.measured_runs.steady_state import are_repeats, steady_step, time_us_of
from predict.measurement.measurement import settings_of
from predict.measurement.pace import noted_references
from predict.measurement.system_noise import SPREAD_LIMIT, quiet_steps, spread_between
from predict.run.calibration_terms import LONGEST_US, MOST_NOISE, SHORTEST_US, MeasuredTime, Posterior
from predict.run.durations import US, duration_us
from predict.run.training_run import TrainingRun
from sampling.errors import UNREADABLE, UserError
from sampling.files.documents import read_json
from sampling.files.faults import counted
from sampling.number_text import count, duration, whole_percent
from sampling.store.pace_log import References

HOW = (
    "give a number with its unit, such as 412ms or 3.2s, the log of a training framework, or a file that `predict measure CONFIG --json` "
    "wrote"
)
TIME = re.compile(r"\s*[-+]?\.?\d[^/]*$")
"""What is meant as a time: text that begins with a digit or its sign, and is not a path."""
MOST_DISTURBED = 0.95
"""Largest share of the machine that others are taken to have had: a step that ended had some of it itself."""
ALONE = "one line states a time, and warm-up may be in it"


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredStep:
    """A step as measured; times are µs."""

    step_us: float
    p10_us: float
    p90_us: float
    source: str
    """How it is known, in words."""
    date: str = ""
    """Date of the measurement in ISO 8601; empty where that is not known."""
    peak_bytes: float | None = None
    """Peak of allocated memory per GPU."""
    noise: float = 0.0
    """Standard deviation in log time that the noise of its steps leaves: their spread, and what other processes may have slowed them by.
    Not the standard error of a median, since slow spells last for many steps: repeats of a run differ by about as much as its steps do."""
    logged: tuple[tuple[int, float], ...] = ()
    """Number and time of each line of a log that states a step, in µs, warm-up included; empty for a step that is known alone."""
    settings: frozenset[str] = frozenset()
    """Key paths of the settings that the run is known to have had, since this project ran it; none of a time or a log."""
    references: tuple[References, ...] = ()
    """The reference calls beside the steps, which show the machine's pace."""

    @property
    def noisy(self) -> bool:
        return self.noise > SPREAD_LIMIT


def measured_step(text: str, run: TrainingRun, *, option: str = "--measured") -> MeasuredStep:
    """The step of `run` that a user gives; UserError with a line for each thing that is wrong with it."""
    path = Path(text)
    try:
        if re.fullmatch(r".+\.json", text) and not (path.is_file() and states_steps(path)):
            return _of_measure(path, run)
        return _of_text(text) if is_time(text) else _of_log(path, run)
    except UserError as error:
        raise UserError("\n".join(f"{option}: {line}" for line in str(error).split("\n"))) from None


def is_time(text: str) -> bool:
    """Whether a text is meant as a time rather than as the name of a file."""
    return bool(TIME.match(text)) and not Path(text).is_file()


def logged_us(log: str | None, run: TrainingRun, report: Callable[[str], None]) -> float | None:
    """The step of a run without the profiler, as its log or a time states it, in µs; None without one. A noisy one is reported."""
    if log is None:
        return None
    step = measured_step(log, run, option="--log")
    if step.noisy:
        report(f"--log: {noise_warning(step)}")
    return step.step_us


def noise_warning(step: MeasuredStep) -> str:
    """The sentence on a noisy step; empty for a quiet one."""
    if not step.noisy:
        return ""
    return f"{step.source}: noisy: its steps leave the time uncertain by {whole_percent(step.noise)} (standard deviation); measure it again on a quiet machine"


def _of_text(text: str) -> MeasuredStep:
    time_us = duration_us(text)
    if time_us is None:
        raise UserError(f"{text!r} is not a time above 0 with a unit, one of {', '.join(US)}; {HOW}")
    if not SHORTEST_US <= time_us <= LONGEST_US:
        raise UserError(
            f"{text!r}: no step takes that; give one from {duration(SHORTEST_US)} to {duration(LONGEST_US)}"
        )
    return MeasuredStep(step_us=time_us, p10_us=time_us, p90_us=time_us, source=f"{text.strip()} as given")


def _of_measure(path: Path, run: TrainingRun) -> MeasuredStep:
    content, faults = read_json(path)
    stated = content.get("step_time_us") if content else None
    times = [stated.get(name) if isinstance(stated, dict) else None for name in ("median", "p10", "p90")]
    median_us, p10_us, p90_us = (above_zero(each) for each in times)
    p10_us, p90_us = p10_us or median_us, p90_us or median_us
    if not median_us or faults:
        why = faults[0].problem if faults else "holds no step_time_us.median"
        raise UserError(f"{path}: {why}; {HOW}")
    assert content is not None
    if not p10_us <= median_us <= p90_us:
        raise UserError(
            f"{path}: its step_time_us has p10 {duration(p10_us)}, median {duration(median_us)} and p90 {duration(p90_us)}, which cannot be; give "
            "the file as `predict measure CONFIG --json` wrote it"
        )
    if wrong := [*_of_another_run(content, median_us, run)]:
        raise UserError("\n".join(f"{path}: not of {run.name}: {each}" for each in wrong))
    device = content.get("device")
    peak = device.get("peak_allocated_bytes") if isinstance(device, dict) else None
    return MeasuredStep(
        step_us=median_us,
        p10_us=p10_us,
        p90_us=p90_us,
        source=f"{path} (predict measure)",
        date=_written(path),
        peak_bytes=peak if isinstance(peak, int | float) and peak > 0 else None,
        noise=min(
            MOST_NOISE, independent_causes(spread_between(p10_us, p90_us), _slowed(content.get("others_shares")))
        ),
        settings=frozenset(settings if isinstance(settings := content.get("settings"), dict) else ()),
        references=tuple(_references(content.get("references"))),
    )


def _references(beside: object) -> Iterator[References]:
    for noted in beside if isinstance(beside, list) else ():
        if found := noted_references(noted):
            yield found


def _slowed(shares: object) -> float:
    """Slowdown, in log time, that other processes may have caused where they disturbed most steps: that of a step on
    the rest of the machine."""
    given = shares if isinstance(shares, list) else []
    known = [min(each, MOST_DISTURBED) for each in given if isinstance(each, int | float) and 0 <= each <= 1]
    return -math.log1p(-median(known)) if known and quiet_steps(known)[1] else 0.0


def _of_another_run(content: Mapping[str, Any], median_us: float, run: TrainingRun) -> Iterator[str]:
    """Facts of a file of `predict measure --json` that cannot be of the run."""
    name, rate, settings = (content.get(key) for key in ("run", "tokens_per_s", "settings"))
    if isinstance(name, str) and name != run.name:
        yield f"it was measured with the config {name}; give that config"
    tokens = run.batch.global_ * run.batch.seq_len
    stated = rate * median_us / 1e6 if isinstance(rate, int | float) else tokens
    if not 1 / SLACK < stated / tokens < SLACK:
        yield f"its steps have {count(stated)} tokens, the config's {tokens:,}; give the config of that run"
    own = settings_of(run)
    for key, value in settings.items() if isinstance(settings, dict) else ():
        if key in own and str(value) != own[key]:
            yield f"its {key} is {value}, the config's {own[key]}; give the config of that run"


def _of_log(path: Path, run: TrainingRun) -> MeasuredStep:
    if not path.exists() and len(path.parts) == 1 and not path.suffix:
        raise UserError(f"{str(path)!r} is not a time; {HOW}")
    log = read_log(path)
    steady = steady_step(log, run)
    if open_ := [*not_steady(steady)]:
        raise UserError("\n".join(f"{path}: {each}" for each in open_))
    if wrong := [*misfits(steady, run)]:
        raise UserError("\n".join(f"{path}: not of {run.name}: {each}" for each in wrong))
    starts = f", the last of {log.starts} starts" if log.starts > 1 else ""
    alone = f", {ALONE}" if steady.lines == 1 else ""
    return MeasuredStep(
        step_us=steady.step_us,
        p10_us=steady.p10_us,
        p90_us=steady.p90_us,
        source=f"{path} ({log.framework}, {steady.lines} of {steady.of_lines} lines{starts}{alone})",
        date=log.date or _written(path),
        peak_bytes=log.peak_bytes,
        noise=min(MOST_NOISE, spread_between(steady.p10_us, steady.p90_us)),
        logged=tuple((step.step, time_us_of(step, run)) for step in log.steps if not step.skipped),
    )


def _written(path: Path) -> str:
    """The time at which the file was last written."""
    return datetime.fromtimestamp(path.stat().st_mtime).isoformat(timespec="seconds")


Timed = tuple[TrainingRun, MeasuredTime]


def given_times(
    runs: Sequence[TrainingRun], given: Sequence[str], report: Callable[[str], None] = lambda _: None
) -> list[Timed]:
    """Each run with the step that was given for it; a noisy one is reported. UserError lists every one that cannot be
    read, or is not of its run."""
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
                report(f"--measured: {noise_warning(step)}; until then it moves the terms little")
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
    """Equal runs as one with the median of their times, each time once; noisy ones count where there is no other.
    UserError for repeats that differ too much."""
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
            stated = ", ".join(f"{duration(time.step_us)} ({time.source})" for time in times)
            unit = unit_mistake(max(each_us) / min(each_us))
            mistaken = f": one is about {unit} another, check the unit" if unit else ""
            yield (
                f"--measured: {run.name}: {stated} for one config differ by more than repeats do{mistaken}; leave out what is wrong, or, where the "
                "file holds it from before, start anew with another --output"
            )
