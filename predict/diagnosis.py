"""A run as its user has it, by script, config, log or trace: does it fit, is its step normal, where is time lost, what helps most."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from predict import estimate, load
from predict.config.document import Config, Document, read_config
from predict.config.overrides import as_settings
from predict.convert.import_files import import_config, is_run_config, require_none_accepted
from predict.convert.spelling import Dialect, in_their_words
from predict.interval import Interval
from predict.kinds import LoadedRun, Values
from predict.measured_runs.explain.causes import ALL_SLOWER, MESSAGES, Finding
from predict.measured_runs.explain.explanation import Explanation, explained_trace
from predict.measured_runs.infer import infer_config, is_measured
from predict.measured_runs.judge import (
    ADVICE,
    LINKS_ADVICE,
    MACHINE_ADVICE,
    MENDED,
    Cause,
    Judgement,
    judge,
    with_values,
)
from predict.measured_runs.measured_step import MeasuredStep, is_time, measured_step
from predict.measured_runs.served_log import ServedLog
from predict.measured_runs.step_series import DATA, LATE_RANKS
from predict.measured_runs.traces import is_trace
from predict.plan_search.changes import MOST, best_changes
from predict.run.training_run import TrainingRun, settings_of
from predict.step.prediction import Prediction
from predict.validation.nearest import NearRun, nearest_published
from sampling.errors import UserError

LEAST_LOST = 0.03
"""Share of the measured step from which on what is lost is mended before the plan is changed."""
LEAST_LIKELY = 0.2
"""Probability from which on a cause that nothing shows is worth a look before the plan is changed."""
MOST_MENDED = 2
"""Causes among the changes that are named, at most: the plan may have something to give too."""
OF_TRACE: Mapping[str, tuple[str, str]] = {
    "attention": (
        "execution.attention",
        "the kernel that runs is not the one that the config says: look at what the framework dispatches to",
    ),
    "data": (f"execution.{MENDED[DATA]}", ADVICE[DATA]),
    "slow_rank": (f"execution.{MENDED[LATE_RANKS]}", ADVICE[LATE_RANKS]),
    "standstill": (f"execution.{MENDED[LATE_RANKS]}", ADVICE[LATE_RANKS]),
    "communication": ("execution.between_nodes_time", LINKS_ADVICE),
    MESSAGES: ("execution.between_nodes_time", LINKS_ADVICE),
}
"""Cause that a trace shows → the key that stands for it, and what to do."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Suggestion:
    """One thing to change, and what it brings."""

    settings: Values
    """Key path → value of the run with it."""
    gain: Interval
    """Share of the step that it saves."""
    fits_probability: float
    in_their_words: tuple[str, ...]
    """The lines to write in the user's own files, or what to look at."""
    mends: str = ""
    """The cause that it takes away; empty for another plan."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnosis:
    """A run with all that is known of it."""

    config: Mapping[str, Any]
    """The config that the run is taken to have."""
    notes: tuple[str, ...]
    """How values of the user's files were taken."""
    prediction: Prediction
    judgement: Judgement | None
    """The measured step beside the predicted one; None without a log or a trace."""
    causes: tuple[Cause, ...]
    """Where time is lost: by the trace where there is one, else by the log, then what is likely."""
    changes: tuple[Suggestion, ...]
    """What helps most."""
    published: tuple[NearRun, ...]
    """Published runs of the nearest kind."""


def diagnose(
    config: Config | None = None,
    overrides: Sequence[str] = (),
    *,
    log: str | None = None,
    trace: Path | str | None = None,
    accept: Sequence[str] = (),
    report: Callable[[str], None] = lambda line: None,
) -> Diagnosis:
    """Diagnose a training run: whether it fits, whether its step is normal, where time is lost and which changes help most.

    `config` is a run config, or another tool's file of the run, of which `overrides` add what it does not say and `accept` names keys to
    leave out, as in `import_config`; for a run that is loaded no other plans are tried. `log` is a training log, a file of `predict measure
    --json` or a time such as `412ms`; `trace` a trace of torch's profiler, or a folder of them.
    UserError for what cannot be read, or is not of this run.
    """
    understood = _inferred(trace, log, overrides, accept) if config is None else _understood(config, overrides, accept)
    run = understood.run()
    prediction = estimate(run, require_fit=False)
    explanation = None if trace is None else explained_trace(prediction, Path(trace), log=log, report=report)
    judgement = _judgement(prediction, log, explanation)
    causes = _causes(judgement, explanation)
    return Diagnosis(
        config=understood.content(prediction),
        notes=understood.notes,
        prediction=prediction,
        judgement=judgement,
        causes=causes,
        changes=(*_mending(understood.dialects, prediction, judgement, causes), *_other_plans(understood, prediction))[
            :MOST
        ],
        published=nearest_published(prediction.run),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Understood:
    """The user's file as a config, and the tools whose words it has."""

    config: Config
    overrides: Sequence[str]
    dialects: tuple[Dialect, ...] = ()
    notes: tuple[str, ...] = ()

    def run(self) -> TrainingRun:
        """The run, of which a tool's file states what the tool has a default for too."""
        run = load(self.config, self.overrides)
        return replace(run, given=run.given.union(*(each.states(run) for each in self.dialects)))

    def content(self, prediction: Prediction) -> Mapping[str, Any]:
        """The config's own sections; of a run that is loaded, every setting by its key path."""
        if isinstance(self.config, LoadedRun):
            return settings_of(prediction.run)
        given = Document(name=prediction.run.name, content=read_config(self.config).content)
        return given.with_settings(self.overrides).content


def _inferred(
    trace: Path | str | None, log: str | None, overrides: Sequence[str], accept: Sequence[str]
) -> _Understood:
    """The config that a trace or a log shows by itself. UserError for what it lacks, with the setting that gives it."""
    shown_by = trace or log
    if shown_by is None:
        raise UserError("CONFIG: missing; give the run's launch script or its config, or a --log or --trace of it")
    if trace is None and is_time(str(shown_by)):
        raise UserError(
            f"CONFIG: missing; --log {log} states a time alone: give the launch script or the config of its run"
        )
    require_none_accepted(accept)
    found = infer_config(shown_by).with_settings(overrides)
    if isinstance(found.measured, ServedLog):
        raise UserError(
            f"{shown_by}: is the log of a server ({found.measured.engine}), and a training run is diagnosed; `predict import-config` makes a config "
            "of it for `predict serving`"
        )
    if found.missing:
        raise UserError("\n".join(found.missing))
    return _Understood(config=found.document, overrides=(), notes=found.uncertain)


def _understood(config: Config, overrides: Sequence[str], accept: Sequence[str]) -> _Understood:
    if not isinstance(config, str | Path) or is_run_config(Path(config)):
        require_none_accepted(accept)
        return _Understood(config=config, overrides=overrides)
    path = Path(config)
    if path.exists() and is_measured(path):
        option = "--trace" if is_trace(path) else "--log"
        raise UserError(
            f"{config}: is what a run writes, not what launches it; give `predict diagnose {option} {config}`"
        )
    read = import_config([config], overrides, accept=accept)
    return _Understood(config=read.document, overrides=(), dialects=read.dialects, notes=read.notes)


def _judgement(prediction: Prediction, log: str | None, explanation: Explanation | None) -> Judgement | None:
    if log is not None:
        return judge(prediction, measured_step(log, prediction.run, option="--log"))
    if explanation is None:
        return None
    step_us = explanation.measured.step_us
    return judge(prediction, MeasuredStep(step_us=step_us, p10_us=step_us, p90_us=step_us, source="the trace"))


def _causes(judgement: Judgement | None, explanation: Explanation | None) -> tuple[Cause, ...]:
    """The causes that the trace shows, and the log beside it; those that are likely only where no trace shows where time goes."""
    if judgement is None:
        return ()
    if explanation is None:
        return judgement.causes
    seen = tuple(each for each in judgement.causes if each.probability == 1)
    return (*(_of_finding(each, explanation.prediction.run) for each in explanation.verdict), *seen)


def _of_finding(finding: Finding, run: TrainingRun) -> Cause:
    of_machine = MACHINE_ADVICE[run.cluster.gpu.kind] if finding.cause == ALL_SLOWER else ""
    path, advice = OF_TRACE.get(finding.cause, ("", of_machine))
    key = path.partition(".")[2]
    return Cause(
        cause=finding.cause,
        text=finding.text,
        cost_us=finding.cost_us,
        settings={path: getattr(run.execution, key)} if key else {},
        advice=advice,
    )


def _mending(
    dialects: Sequence[Dialect], prediction: Prediction, judgement: Judgement | None, causes: Sequence[Cause]
) -> Iterator[Suggestion]:
    """Changes that take the causes away which cost much, the likeliest and costliest first."""
    if judgement is None:
        return
    step_us = judgement.measured.step_us
    worth = [
        each
        for each in causes
        if each.advice and each.cost_us >= LEAST_LOST * step_us and each.probability >= LEAST_LIKELY
    ]
    if judgement.verdict == "normal":
        worth = [each for each in worth if each.probability == 1]
    for cause in sorted(worth, key=lambda each: -each.probability * each.cost_us)[:MOST_MENDED]:
        lost = cause.share_of(step_us)
        sure = cause.probability == 1
        yield Suggestion(
            settings=cause.settings,
            gain=Interval(median=lost * cause.probability, low=lost if sure else 0.0, high=lost),
            fits_probability=prediction.memory.fits_probability,
            in_their_words=(*_mended_words(dialects, prediction.run, cause), cause.advice),
            mends=cause.cause,
        )


def _mended_words(dialects: Sequence[Dialect], run: TrainingRun, cause: Cause) -> tuple[str, ...]:
    """The lines that a run has which is as its config says; none for a cause outside of its files."""
    if not cause.wrong:
        return ()
    if not dialects:
        return in_their_words((), run, run, cause.settings)
    wrong = with_values(run, cause.wrong)
    found = [dialect.lines(wrong, run, cause.settings)[0] for dialect in dialects]
    return tuple(dict.fromkeys(line for lines in found for line in lines))


def _other_plans(understood: _Understood, prediction: Prediction) -> Iterator[Suggestion]:
    if isinstance(understood.config, LoadedRun):
        return

    def with_settings(values: Values) -> TrainingRun:
        return load(understood.config, [*understood.overrides, *as_settings(values)])

    for change in best_changes(prediction, with_settings):
        yield Suggestion(
            settings=change.settings,
            gain=change.gain,
            fits_probability=change.fits_probability,
            in_their_words=in_their_words(understood.dialects, prediction.run, change.prediction.run, change.settings),
        )
