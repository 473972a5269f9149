"""`predict validate`: predictions held against what was measured here, held out, or published."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from predict import estimate
from predict.cli.options import (
    add_check,
    add_data,
    add_json,
    add_overrides,
    check_fit,
    flag,
    given,
    log,
    print_answer,
    require_positive,
)
from predict.kinds import KINDS, TRAINING, kind_of
from predict.reports.learnt import left_out_text, plan_setting_text, widths_text
from predict.reports.memory import misfit
from predict.reports.validation import (
    published_memory_text,
    published_text,
    ranking_text,
    rl_validation_text,
    serving_validation_text,
)
from predict.reports.validation_here import measured_rl_text, own_loads_text, validation_text
from predict.serving.coefficients import read_coefficients
from predict.validation.here import (
    ValidatedRun,
    notes_on,
    predictions_of,
    runs_of_this_machine,
    validate,
    validation_json,
)
from predict.validation.left_out import constants_json, judge_constants
from predict.validation.memory import compare_memory, memory_json
from predict.validation.own_loads import ROUNDS, validate_loads
from predict.validation.published import validate_published
from predict.validation.published_row import read_rows
from predict.validation.published_scores import published_json
from predict.validation.ranking import judged, measured_plans, ranking_json
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
from predict.validation.widths import learn_plan_setting, learn_widths, plan_setting_json, widths_json
from sampling.errors import Checks, UserError
from sampling.files.faults import did_you_mean
from sampling.progress import progress_display
from sampling.store.profiles import OWN

GPU = "this-gpu"
DESCRIPTION = """\
Hold predictions against measurements: of configs, which are run here, or by one of these words.

this-machine   the runs of configs/runs/this-machine and configs/runs/transformers, run here
this-gpu       the runs of configs/runs/this-gpu on the GPU found here; without a GPU, the steps that sessions brought to --profile
samples        the time models on rows held out; its tables are kept in benchmarks
published      training steps that others printed: those that ship, or the rows of --truth
memory         measured peaks of memory in --truth
ranking        the order of the measured plans in --truth, and which of them run out of memory
serving        measured serving runs in the folder --truth
rl             published steps of reinforcement learning in --truth
"""
EXAMPLES = """\
examples:
  predict validate configs/runs/demo.yml
  predict validate this-machine --rounds 1
  predict validate samples
  predict validate published --truth data/published/runs.csv
  predict validate configs/rl/this-machine/*.yml
  predict validate serving --truth docs/examples/serving --model formula
  predict validate configs/serving/this-machine/*.yml
"""


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "what",
        metavar="WORD|CONFIG",
        nargs="+",
        help="configs, or one of the words above",
    )
    _add_truth(command)
    add_overrides(command)
    add_data(command)
    command.add_argument(
        "--rounds", type=int, help="interleaved rounds of measuring (default: 3, on a GPU 1 of ten seconds and more)"
    )
    command.add_argument(
        "--keep",
        action="store_true",
        default=None,
        help="this-machine, this-gpu: keep the figures as the error of its profile, in data/published",
    )
    add_check(command)
    add_json(command)


def _add_truth(command: argparse.ArgumentParser) -> None:
    """Options for tables that others measured, and for how they are judged."""
    command.add_argument(
        "--truth",
        type=Path,
        metavar="FILE",
        help="published, memory, ranking, rl: a CSV file of measured runs, one per row; serving: the folder of serving_experiments.csv",
    )
    command.add_argument(
        "--model",
        default="",
        metavar="NAME",
        help="serving: kernels (the default), formula, or published: the formula as published",
    )
    command.add_argument(
        "--coefficients",
        type=Path,
        metavar="FILE",
        help="serving: coefficients that `predict serving-fit` wrote, of --model's",
    )
    command.add_argument(
        "--profile", default="", metavar="NAME", help="published, this-machine, this-gpu: the samples to price all from"
    )
    command.add_argument(
        "--calibrate-on",
        type=Path,
        metavar="FILE",
        help="published: fit the terms of `predict calibrate` to the runs of a CSV file, write them to --calibration, use them",
    )
    command.add_argument("--calibration", type=Path, metavar="FILE", help="published: use, or write, these terms")
    command.add_argument(
        "--widths",
        action="store_true",
        default=None,
        help="published: learn from these runs how wide each unknown makes an interval, and judge it on sources left out; "
        "ranking: how wide each differing setting makes the ratio of two plans",
    )
    command.add_argument(
        "--leave-out",
        action="store_true",
        default=None,
        help="published: learn each constant that was read off published runs again without each source, and judge it there",
    )
    command.add_argument(
        "--measurements",
        type=Path,
        metavar="DIR",
        help="samples: published measurements to judge too, a folder with estimate-train-time/ or aiconfigurator/",
    )


def run(options: argparse.Namespace) -> None:
    _require_known(options.what)
    name = options.what[0] if options.what in ([word] for word in APART) else _kind_of_configs(options.what)
    source = SOURCES[name]
    known = dict.fromkeys(option for each in SOURCES.values() for option in each.options)
    with Checks() as checks:
        with checks.one():
            if extra := given(options, *(option for option in known if option not in source.options)):
                own = ", ".join(map(flag, source.options))
                raise UserError(
                    f"{', '.join(extra)}: does not go with `predict validate {name}`, which takes {own}; omit it"
                )
        checks.run(require_positive, options, "rounds")
        with checks.one():
            if source.truth and options.truth is None:
                raise UserError(f"--truth: missing; give {source.truth}")
    source.answer(options)


def _require_known(what: Sequence[str]) -> None:
    """UserError for a name that is neither one of WORDS nor a config's path."""
    for name in what:
        if name in WORDS and len(what) > 1:
            raise UserError(f"{name}: goes alone; give it in a command of its own")
        if name not in WORDS and not Path(name).suffix and not Path(name).exists():
            near = did_you_mean(name, WORDS) or "."
            raise UserError(f"{name}: is none of {', '.join(WORDS)}, nor the path of a config{near}")


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


def _runs(options: argparse.Namespace) -> None:
    here = options.what[0] if options.what in ([OWN], [GPU]) else ""
    if options.profile and not here:
        raise UserError(f"--profile: goes with {OWN}, {GPU} and published; for a config, give --set cluster.profile=…")
    overrides = [*options.overrides, *([PROFILE_KEY + options.profile] if options.profile else [])]
    profiles = named_profiles(overrides)
    steps = steps_of_sessions(profiles[-1]) if here == GPU and profiles else None
    kept = kept_file(overrides, here=here, on_gpu=here == GPU, steps=steps) if options.keep else None
    named = [ValidatedRun(config=Path(name), implementation="torch") for name in options.what]
    runs = {OWN: runs_of_this_machine, GPU: runs_of_this_gpu}[here]() if here else named
    if here == GPU:
        overrides = [*settings_of_this_gpu(steps), *overrides]
    predicted = predictions_of(runs, overrides)
    notes, misfits = notes_on(predicted), [misfit(each.memory) for each in predicted]
    check_fit(options, misfits)
    if steps:
        found = against_sessions(runs, predicted, steps, report=log)
    else:
        found = validate(runs, predicted, rounds=options.rounds or (1 if here == GPU else 3), report=log)
    if kept:
        keep(kept, found.rows, of=len(runs), report=log)
    elif here:
        log("the figures are not kept; --keep makes them the error of the profile")
    print_answer(
        options,
        found.rows,
        lambda rows: validation_json(rows) | {"notes": notes},
        lambda rows: validation_text(rows, notes, misfits),
    )
    if found.failed:
        raise UserError(
            f"{len(found.failed)} of {len(runs)} runs failed and have no row: {', '.join(found.failed)}; mend what is told above, "
            "and the same command measures them alone"
        )


def _samples(options: argparse.Namespace) -> None:
    from regressors.accuracy.benchmark import benchmark, lost_tables
    from regressors.accuracy.report import as_markdown, as_text
    from sampling.files.disk import MAKE_WRITABLE, require_place, write_atomically
    from sampling.files.places import benchmarks, own_data

    kept = benchmarks() / "accuracy.json"
    require_place(kept, MAKE_WRITABLE)
    content = benchmark(own_data() / "samples", options.measurements)
    if lost := lost_tables(content, kept):
        log(
            f"not kept: {kept} has tables that this result lacks: {lost}; give all with --measurements, or remove the file"
        )
    else:
        write_atomically(kept, json.dumps(content, indent=1).encode())
        write_atomically(kept.with_suffix(".md"), as_markdown(content).encode())
    print_answer(options, content, dict, as_text)


def _published(options: argparse.Namespace) -> None:
    found, calibration = validate_published(
        truth=options.truth,
        profile=options.profile,
        calibrate_on=options.calibrate_on,
        calibration=options.calibration,
        report=log,
    )
    if options.widths:
        print_answer(options, learn_widths(found), widths_json, widths_text)
    elif options.leave_out:
        with progress_display("judging") as progress:
            constants = judge_constants(found, progress)
        print_answer(options, constants, constants_json, left_out_text)
    else:
        terms = {"calibration": asdict(calibration)} if calibration else {}
        print_answer(
            options, found, lambda each: published_json(each) | terms, lambda each: published_text(each, calibration)
        )


def _memory(options: argparse.Namespace) -> None:
    rows = read_rows(options.truth)
    with progress_display("counting") as progress:
        found = compare_memory(rows, progress)
    print_answer(options, found, memory_json, published_memory_text)


def _ranking(options: argparse.Namespace) -> None:
    rows = read_rows(options.truth)
    with progress_display("predicting") as progress:
        plans, left_out = measured_plans(rows, progress)
    if options.widths:
        print_answer(options, learn_plan_setting(plans), plan_setting_json, plan_setting_text)
        return
    print_answer(options, ranking_json(*judged(plans), left_out), dict, ranking_text)


def _serving(options: argparse.Namespace) -> None:
    content = validate_serving(options.truth, options.model, options.coefficients)
    print_answer(options, content, dict, serving_validation_text)


def _rl(options: argparse.Namespace) -> None:
    print_answer(options, validate_rl(options.truth, estimate), dict, rl_validation_text)


def _rl_configs(options: argparse.Namespace) -> None:
    """RL steps of this machine, predicted and then run."""
    rows = validate_rl_here(options.what, options.overrides, rounds=options.rounds or 3, report=log)
    print_answer(options, rows, measured_rl_json, measured_rl_text)


def _serving_configs(options: argparse.Namespace) -> None:
    """Loads of this machine's real server, predicted and then served."""
    content = validate_loads(
        options.what,
        options.overrides,
        rounds=options.rounds or ROUNDS,
        coefficients=read_coefficients(options.coefficients) if options.coefficients else None,
        report=log,
    )
    print_answer(options, content, dict, own_loads_text)


class Source(NamedTuple):
    """One source of measurements."""

    answer: Callable[[argparse.Namespace], None]
    options: tuple[str, ...]
    """Those that it takes, except --json and --rounds."""
    truth: str = ""
    """The tables that --truth must name; empty where none is needed."""


SOURCES: Mapping[str, Source] = {
    "samples": Source(_samples, ("measurements",)),
    "published": Source(_published, ("truth", "profile", "calibrate_on", "calibration", "widths", "leave_out")),
    "memory": Source(_memory, ("truth",), truth="a CSV file of runs with a column peak_mem_gib"),
    "ranking": Source(
        _ranking, ("truth", "widths"), truth="a CSV file of measured plans, those out of memory with status oom"
    ),
    "serving": Source(_serving, ("truth", "model", "coefficients"), truth="the folder of serving_experiments.csv"),
    "rl": Source(_rl, ("truth",), truth="a CSV file of published RL steps, one per row"),
    "runs": Source(_runs, ("overrides", "keep", "profile", "check")),
    "rl-configs": Source(_rl_configs, ("overrides",)),
    "serving-configs": Source(_serving_configs, ("overrides", "coefficients")),
}
APART = tuple(name for name in SOURCES if not name.endswith(("runs", "-configs")))
WORDS = (OWN, GPU, *APART)
"""Words that may stand in place of configs."""
