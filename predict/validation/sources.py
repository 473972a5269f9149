"""Sources of measurements by name, and the one function that holds predictions against any of them: `predict validate`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from predict import estimate
from predict.config.overrides import flag
from predict.kinds import KINDS, TRAINING, kind_of
from predict.serving.coefficients import read_coefficients
from predict.step.prediction import Prediction
from predict.validation.here import (
    ValidatedRun,
    against_real_steps,
    notes_on,
    predictions_of,
    runs_of_this_machine,
    validation_json,
)
from predict.validation.jobs import jobs_json, validate_jobs
from predict.validation.left_out import constants_json, judge_constants
from predict.validation.memory import compare_memory, memory_json
from predict.validation.own_loads import ROUNDS, validate_loads
from predict.validation.published import validate_published
from predict.validation.published_row import read_rows
from predict.validation.published_scores import published_json
from predict.validation.published_servers import published_servers_json, validate_published_servers
from predict.validation.ranking import judged, measured_plans, ranking_json
from predict.validation.recipes import judge_recipes, recipes_json, tuned_rows
from predict.validation.rl import validate_rl
from predict.validation.rl_here import measured_rl_json, validate_rl_here
from predict.validation.serving_scores import validate_serving
from predict.validation.sessions import (
    PROFILE_KEY,
    against_sessions,
    keep,
    kept_file,
    named_profiles,
    runs_of_this_gpu,
    settings_of_this_gpu,
    steps_of_sessions,
)
from predict.validation.widths import learn_plan_setting, learn_widths, plan_setting_json
from regressors.accuracy.benchmark import benchmark, lost_tables
from regressors.accuracy.report import as_markdown
from sampling.errors import Checks, UserError
from sampling.files.disk import MAKE_WRITABLE, require_place, write_atomically
from sampling.files.faults import did_you_mean
from sampling.files.places import benchmarks, own_data
from sampling.progress import progress_display
from sampling.store.profiles import OWN

GPU = "this-gpu"
Check = Callable[[Sequence[Prediction]], None]
Report = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class ValidationOptions:
    """Options of a validation; each source takes some of these, as SOURCES lists them."""

    overrides: Sequence[str] = ()
    truth: Path | None = None
    """The measurements: a table, or a folder of tables."""
    model: str = ""
    """Model of a server's steps."""
    coefficients: Path | None = None
    """File of that model's coefficients."""
    profile: str = ""
    """The samples that all is priced from."""
    calibrate_on: Path | None = None
    """Table of runs that terms are fitted to, which are written to `calibration` and used."""
    calibration: Path | None = None
    widths: bool = False
    """Whether widths of intervals are learnt, and judged on sources left out."""
    leave_out: bool = False
    """Whether constants that were read off published runs are learnt again without each source."""
    measurements: Path | None = None
    """Folder of published measurements that samples are judged with."""
    rounds: int | None = None
    """Interleaved rounds of measuring: by default 3, on a GPU 1."""
    keep: bool = False
    """Whether the figures are kept as the error of their profile."""
    save: Path | None = None
    """File of what was found, from which an interrupted validation goes on."""
    check: Check | None = None
    """Called with the predictions of run configs before anything is measured; it may raise."""

    def given(self) -> list[str]:
        """The options that are not at their default."""
        return [each.name for each in fields(self) if getattr(self, each.name) not in (None, False, "", (), [])]


@dataclass(frozen=True, kw_only=True, slots=True)
class Validated:
    """Predictions beside the measurements of one source."""

    answer: str
    """Which answer it is: the source's name; `widths`, `plan-setting` or `constants` where these are learnt."""
    found: Any
    """The comparisons, as the source's own module has them."""
    as_json: Callable[[Any], Mapping[str, Any]] = dict

    @property
    def content(self) -> Mapping[str, Any]:
        """The content that `--json` prints."""
        return self.as_json(self.found)


def validate(
    what: Path | str,
    *further_configs: Path | str,
    overrides: Sequence[str] = (),
    truth: Path | str | None = None,
    model: str = "",
    coefficients: Path | str | None = None,
    profile: str = "",
    calibrate_on: Path | str | None = None,
    calibration: Path | str | None = None,
    widths: bool = False,
    leave_out: bool = False,
    measurements: Path | str | None = None,
    rounds: int | None = None,
    keep: bool = False,
    save: Path | None = None,
    check: Check | None = None,
    report: Report = lambda line: None,
) -> Validated:
    """Predictions held against measurements: of configs, which are run here, or of a source such as `published` or `this-machine`.

    `.found` are the comparisons, `.content` what the command's `--json` prints. The parameters are those of the command, as
    ValidationOptions describes them; each source takes some of them. `report` is called with a line on what happens. UserError for what
    cannot be, with all faults of the parameters.
    """
    options = ValidationOptions(
        overrides=overrides,
        truth=_path(truth),
        model=model,
        coefficients=_path(coefficients),
        profile=profile,
        calibrate_on=_path(calibrate_on),
        calibration=_path(calibration),
        widths=widths,
        leave_out=leave_out,
        measurements=_path(measurements),
        rounds=rounds,
        keep=keep,
        save=save,
        check=check,
    )
    named = [str(name) for name in (what, *further_configs)]
    _require_known(named)
    source = named[0] if named in ([word] for word in APART) else _kind_of_configs(named)
    _require_taken(source, options)
    return SOURCES[source].answer(named, options, report)


def _path(written: Path | str | None) -> Path | None:
    return None if written is None else Path(written)


def _require_known(what: Sequence[str]) -> None:
    """UserError for a name that is neither one of WORDS nor a config's path."""
    for name in what:
        if name in WORDS and len(what) > 1:
            raise UserError(f"{name}: cannot be combined with other names; give it in a command of its own")
        if name not in WORDS and not Path(name).suffix and not Path(name).exists():
            near = did_you_mean(name, WORDS) or "; check the path"
            raise UserError(f"{name}: there is no such file, and it is not one of {', '.join(WORDS)}{near}")


def _kind_of_configs(named: Sequence[str]) -> str:
    """The source that runs the configs: run configs, RL configs or serving configs; UserError for several kinds."""
    kinds = {name: kind_of(name) for name in named if name not in WORDS}
    for name, kind in kinds.items():
        if kind != TRAINING and set(kinds.values()) != {kind}:
            raise UserError(
                f"{name}: is {KINDS[kind].title}, and others are not; give either kind in a command of its own"
            )
        if kind != TRAINING:
            return f"{kind}-configs"
    return "runs"


def _require_taken(name: str, options: ValidationOptions) -> None:
    """UserError with every fault: options that the source does not take, rounds below 1, and a table that is missing."""
    source = SOURCES[name]
    known = dict.fromkeys(option for each in SOURCES.values() for option in each.options)
    given = options.given()
    with Checks() as checks:
        with checks.one():
            if extra := [flag(option) for option in known if option in given and option not in source.options]:
                own = ", ".join(map(flag, source.options))
                raise UserError(
                    f"{', '.join(extra)}: does not apply to `predict validate {source.title or name}`, which takes {own}; omit it"
                )
        with checks.one():
            if options.rounds is not None and options.rounds < 1:
                raise UserError(f"--rounds: {options.rounds} is not a positive number; give 1 or more")
        with checks.one():
            if source.truth and options.truth is None:
                raise UserError(f"--truth: missing; give {source.truth}")


def _runs(what: Sequence[str], options: ValidationOptions, report: Report) -> Validated:
    """Training steps of configs, of this machine's CPU or its GPU, predicted and then run, or held against those of sessions."""
    here = what[0] if what[0] in (OWN, GPU) else ""
    if options.profile and not here:
        raise UserError(
            f"--profile: applies only to {OWN}, {GPU} and published; for a config, give --set cluster.profile=…"
        )
    overrides = [*options.overrides, *([PROFILE_KEY + options.profile] if options.profile else [])]
    profiles = named_profiles(overrides)
    steps = steps_of_sessions(profiles[-1]) if here == GPU and profiles else None
    kept = kept_file(overrides, here=here, on_gpu=here == GPU, steps=steps) if options.keep else None
    named = [ValidatedRun(config=Path(name), implementation="torch") for name in what]
    runs = {OWN: runs_of_this_machine, GPU: runs_of_this_gpu}[here]() if here else named
    if here == GPU:
        overrides = [*settings_of_this_gpu(steps), *overrides]
    predicted = predictions_of(runs, overrides)
    if options.check:
        options.check(predicted)
    if steps:
        found = against_sessions(runs, predicted, steps, report=report)
    else:
        found = against_real_steps(runs, predicted, rounds=options.rounds or (1 if here == GPU else 3), report=report)
    if kept:
        keep(kept, found.rows, of=len(runs), report=report)
    elif here:
        report("the figures are not kept; --keep makes them the error of the profile")
    return Validated(
        answer="runs",
        found=found,
        as_json=lambda found: validation_json(found.rows) | {"notes": notes_on(found.predictions)},
    )


def _rl_configs(what: Sequence[str], options: ValidationOptions, report: Report) -> Validated:
    """RL steps of this machine, predicted and then run."""
    rows = validate_rl_here(what, options.overrides, rounds=options.rounds or 3, report=report)
    return Validated(answer="rl-configs", found=rows, as_json=measured_rl_json)


def _serving_configs(what: Sequence[str], options: ValidationOptions, report: Report) -> Validated:
    """Loads of this machine's real server, predicted and then served."""
    content = validate_loads(
        what,
        options.overrides,
        rounds=options.rounds or ROUNDS,
        coefficients=read_coefficients(options.coefficients) if options.coefficients else None,
        report=report,
    )
    return Validated(answer="serving-configs", found=content)


def _samples(what: Sequence[str], options: ValidationOptions, report: Report) -> Validated:
    """The time models on rows held out. The tables are kept in benchmarks, unless they would lack some that are there."""
    kept = benchmarks() / "accuracy.json"
    require_place(kept, MAKE_WRITABLE)
    partial = kept.with_suffix(".partial.jsonl")
    content = benchmark(own_data() / "samples", options.measurements, partial)
    if lost := lost_tables(content, kept):
        report(
            f"not kept: {kept} has tables that this result lacks: {lost}; give all with --measurements, or remove the file"
        )
    else:
        write_atomically(kept, json.dumps(content, indent=1).encode())
        write_atomically(kept.with_suffix(".md"), as_markdown(content).encode())
        partial.unlink(missing_ok=True)
    return Validated(answer="samples", found=content)


def _published(what: Sequence[str], options: ValidationOptions, report: Report) -> Validated:
    found = validate_published(
        truth=options.truth,
        profile=options.profile,
        calibrate_on=options.calibrate_on,
        calibration=options.calibration,
        report=report,
    )
    outcomes, calibration = found
    if options.widths:
        return Validated(answer="widths", found=learn_widths(outcomes), as_json=asdict)
    if options.leave_out:
        with progress_display("judging") as progress:
            constants = judge_constants(outcomes, progress)
        return Validated(answer="constants", found=constants, as_json=constants_json)
    terms = {"calibration": asdict(calibration)} if calibration else {}
    return Validated(answer="published", found=found, as_json=lambda found: published_json(found[0]) | terms)


def _jobs(what: Sequence[str], options: ValidationOptions, report: Report) -> Validated:
    with progress_display("predicting") as progress:
        found = validate_jobs(options.truth, progress)
    return Validated(answer="jobs", found=found, as_json=jobs_json)


def _memory(what: Sequence[str], options: ValidationOptions, report: Report) -> Validated:
    rows = read_rows(_truth(options))
    with progress_display("counting") as progress:
        found = compare_memory(rows, progress)
    return Validated(answer="memory", found=found, as_json=memory_json)


def _ranking(what: Sequence[str], options: ValidationOptions, report: Report) -> Validated:
    rows = read_rows(_truth(options))
    with progress_display("predicting") as progress:
        plans, left_out = measured_plans(rows, progress)
    if options.widths:
        return Validated(answer="plan-setting", found=learn_plan_setting(plans), as_json=plan_setting_json)
    found = ranking_json(*judged(plans), left_out, chain.from_iterable(plans.values()))
    return Validated(answer="ranking", found=found)


def _recipes(what: Sequence[str], options: ValidationOptions, report: Report) -> Validated:
    rows = tuned_rows(read_rows(_truth(options)))
    with progress_display("searching") as progress:
        found = judge_recipes(rows, progress, save=options.save)
    if len(found) < len(rows):
        report(f"interrupted: {len(found)} of {len(rows)} recipes are judged")
    return Validated(answer="recipes", found=found, as_json=recipes_json)


def _serving(what: Sequence[str], options: ValidationOptions, report: Report) -> Validated:
    return Validated(answer="serving", found=validate_serving(_truth(options), options.model, options.coefficients))


def _servers(what: Sequence[str], options: ValidationOptions, report: Report) -> Validated:
    found = validate_published_servers(options.truth)
    return Validated(answer="servers", found=found, as_json=published_servers_json)


def _rl(what: Sequence[str], options: ValidationOptions, report: Report) -> Validated:
    return Validated(answer="rl", found=validate_rl(_truth(options), estimate))


def _truth(options: ValidationOptions) -> Path:
    """The tables of a source that needs some."""
    assert options.truth is not None
    return options.truth


class Source(NamedTuple):
    """One source of measurements."""

    answer: Callable[[Sequence[str], ValidationOptions, Report], Validated]
    options: tuple[str, ...]
    """Those that it takes, except the rounds."""
    truth: str = ""
    """The tables that --truth must name; empty where none is needed."""
    title: str = ""
    """The configs that it measures, as a reader names them; empty for a source that a word names."""


SOURCES: Mapping[str, Source] = {
    "samples": Source(_samples, ("measurements",)),
    "published": Source(_published, ("truth", "profile", "calibrate_on", "calibration", "widths", "leave_out")),
    "jobs": Source(_jobs, ("truth",)),
    "memory": Source(_memory, ("truth",), truth="a CSV file of runs with a column peak_mem_gib"),
    "ranking": Source(
        _ranking, ("truth", "widths"), truth="a CSV file of measured plans, those out of memory with status oom"
    ),
    "recipes": Source(_recipes, ("truth", "save"), truth="a CSV file of published runs, tuned ones among them"),
    "serving": Source(_serving, ("truth", "model", "coefficients"), truth="the folder of serving_experiments.csv"),
    "servers": Source(_servers, ("truth",)),
    "rl": Source(_rl, ("truth",), truth="a CSV file of published RL steps, one per row"),
    "runs": Source(_runs, ("overrides", "keep", "profile", "check"), title="RUN-CONFIG"),
    "rl-configs": Source(_rl_configs, ("overrides",), title="RL-CONFIG"),
    "serving-configs": Source(_serving_configs, ("overrides", "coefficients"), title="SERVING-CONFIG"),
}
APART = tuple(name for name, source in SOURCES.items() if not source.title)
WORDS = (OWN, GPU, *APART)
"""Words that may stand in place of configs."""
