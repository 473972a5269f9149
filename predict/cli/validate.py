"""`predict validate`: predictions held against what was measured here, held out, or published."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from predict.cli.options import (
    add_check,
    add_command,
    add_data,
    add_json,
    add_overrides,
    check_fit,
    flag,
    given,
    log,
    print_json,
    require_positive,
)
from sampling.errors import UserError
from sampling.files.faults import did_you_mean
from sampling.store.profiles import OWN

if TYPE_CHECKING:
    from predict.validate.published.comparison import Comparison
    from predict.validate.ranking.plans import MeasuredPlan

GPU = "this-gpu"
WORDS = (OWN, GPU, "samples", "published", "memory", "ranking", "serving", "rl")
"""What may be validated apart from configs."""
APART = WORDS[2:]
OWN_OPTIONS = {
    "samples": ("measurements",),
    "published": ("truth", "profile", "calibrate_on", "calibration", "widths", "leave_out"),
    "memory": ("truth",),
    "ranking": ("truth", "widths"),
    "serving": ("truth", "model", "coefficients"),
    "rl": ("truth",),
    "runs": ("overrides", "keep", "profile", "check"),
    "rl-configs": ("overrides",),
    "serving-configs": ("overrides", "coefficients"),
}
"""Options of each kind of validation, except --json and --rounds."""

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


def add(subcommands: Any) -> None:
    command = add_command(subcommands, "validate", "hold predictions against measured steps", EXAMPLES)
    command.add_argument(
        "what",
        metavar="this-machine|this-gpu|samples|published|memory|ranking|serving|rl|CONFIG",
        nargs="+",
        help="this-machine: the runs of configs/runs/this-machine and configs/runs/transformers; this-gpu: those of configs/runs/this-gpu, on the GPU that is "
        "found, or where there is none the steps that sessions brought to --profile; samples: the time models on rows held out, whose tables are kept in benchmarks; published: measured runs that others printed; memory: their "
        "measured peaks (needs --truth); ranking: the order of measured plans, and which run out of memory (needs --truth); serving: measured serving runs (needs --truth); rl: published steps of reinforcement learning (needs --truth); or configs",
    )
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
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    _require_known(options.what)
    what = options.what[0] if options.what in ([name] for name in APART) else _kind_of_configs(options.what)
    known = dict.fromkeys(name for names in OWN_OPTIONS.values() for name in names)
    if extra := given(options, *(name for name in known if name not in OWN_OPTIONS[what])):
        own = ", ".join(map(flag, OWN_OPTIONS[what]))
        raise UserError(f"{', '.join(extra)}: does not go with `predict validate {what}`, which takes {own}; omit it")
    VALIDATE[what](options)


def _kind_of_configs(named: Sequence[str]) -> str:
    """Whether the configs are run configs, RL configs or serving configs; UserError for several kinds."""
    from predict.rl.run.config import is_rl_config
    from predict.serving.config import is_serving_config

    for kind, article, is_kind in (("rl", "an RL", is_rl_config), ("serving", "a serving", is_serving_config)):
        found = [name for name in named if name not in WORDS and is_kind(name)]
        if found and len(found) < len(named):
            raise UserError(
                f"{found[0]}: is {article} config, and others are not; give either kind in a command of its own"
            )
        if found:
            return f"{kind}-configs"
    return "runs"


def _require_known(what: Sequence[str]) -> None:
    """UserError for a name that is neither one of WORDS nor a config's path."""
    for name in what:
        if name in WORDS and len(what) > 1:
            raise UserError(f"{name}: goes alone; give it in a command of its own")
        if name not in WORDS and not Path(name).suffix and not Path(name).exists():
            near = did_you_mean(name, WORDS) or "."
            raise UserError(f"{name}: is none of {', '.join(WORDS)}, nor the path of a config{near}")


def _runs(options: argparse.Namespace) -> None:
    require_positive(options, "rounds")
    here = options.what[0] if options.what in ([OWN], [GPU]) else ""
    overrides = _overrides(options, here=here)
    from predict.report.console import show
    from predict.report.feasibility import misfit
    from predict.report.measured.validation import validation_text
    from predict.validate.kept_figures import keep, kept_file, named_profiles
    from predict.validate.measured_runs import ValidatedRun, notes_on, predictions_of, validate
    from predict.validate.session_steps import against_sessions, steps_of_sessions
    from predict.validate.this_gpu import runs_of_this_gpu, settings_of_this_gpu
    from predict.validate.this_machine import runs_of_this_machine
    from predict.validate.validation_rows import validation_json

    profiles = named_profiles(overrides)
    steps = steps_of_sessions(profiles[-1]) if here == GPU and profiles else None
    kept = kept_file(overrides, here=here, on_gpu=here == GPU, steps=steps) if options.keep else None
    named = (ValidatedRun(config=Path(name), implementation="torch") for name in options.what)
    runs = {OWN: runs_of_this_machine, GPU: runs_of_this_gpu}[here]() if here else list(named)
    if here == GPU:
        overrides = [*settings_of_this_gpu(steps), *overrides]
    predicted = predictions_of(runs, overrides)
    notes, misfits = notes_on(predicted), [misfit(each.memory) for each in predicted]
    check_fit(options, misfits)
    if steps:
        found = against_sessions(runs, predicted, steps, tell=log)
    else:
        found = validate(runs, predicted, rounds=options.rounds or (1 if here == GPU else 3), tell=log)
    if kept:
        keep(kept, found.rows, of=len(runs), tell=log)
    elif here:
        log("the figures are not kept; --keep makes them the error of the profile")
    if options.json:
        print_json(validation_json(found.rows) | {"notes": notes})
    else:
        show(validation_text(found.rows, notes, misfits))
    if found.failed:
        raise UserError(
            f"{len(found.failed)} of {len(runs)} runs failed and have no row: {', '.join(found.failed)}; mend what is told above, "
            "and the same command measures them alone"
        )


def _overrides(options: argparse.Namespace, *, here: str) -> list[str]:
    """The settings, --profile among them, which names the profile that the runs of this machine are predicted from."""
    if options.profile and not here:
        raise UserError(f"--profile: goes with {OWN}, {GPU} and published; for a config, give --set cluster.profile=…")
    from predict.validate.kept_figures import PROFILE_KEY

    return [*options.overrides, *([PROFILE_KEY + options.profile] if options.profile else [])]


def _samples(options: argparse.Namespace) -> None:
    from regressors.accuracy.benchmark import benchmark, lost_tables
    from regressors.accuracy.report import as_markdown, as_text
    from sampling.files.disk import write_atomically
    from sampling.files.places import benchmarks, own_data

    content = benchmark(own_data() / "samples", options.measurements)
    kept = benchmarks() / "accuracy.json"
    if lost := lost_tables(content, kept):
        log(
            f"not kept: {kept} has tables that this result lacks: {lost}; give all with --measurements, or remove the file"
        )
    else:
        write_atomically(kept, json.dumps(content, indent=1).encode())
        write_atomically(kept.with_suffix(".md"), as_markdown(content).encode())
    if options.json:
        print_json(content)
        return
    from predict.report.console import show

    show(as_text(content))


def _published(options: argparse.Namespace) -> None:
    from predict.validate.published.command import validate_published

    verdicts, calibration = validate_published(
        truth=options.truth,
        profile=options.profile,
        calibrate_on=options.calibrate_on,
        calibration=options.calibration,
        tell=log,
    )
    if options.widths or options.leave_out:
        (_widths if options.widths else _left_out)(verdicts, as_json=options.json)
        return
    if options.json:
        from predict.validate.published.summary import as_json

        print_json(as_json(verdicts) | ({"calibration": asdict(calibration)} if calibration else {}))
        return
    from predict.report.console import show
    from predict.report.published.steps import published_text

    show(published_text(verdicts, calibration))


def _widths(verdicts: Sequence[Comparison], *, as_json: bool) -> None:
    from predict.report.console import show
    from predict.report.published.widths import widths_text
    from predict.validate.learning.widths import learn_widths, widths_json

    learnt = learn_widths(verdicts)
    if as_json:
        print_json(widths_json(learnt))
    else:
        show(widths_text(learnt))


def _left_out(verdicts: Sequence[Comparison], *, as_json: bool) -> None:
    from predict.report.console import show
    from predict.report.published.left_out import left_out_text
    from predict.validate.learning.left_out import constants_json, judge_constants
    from sampling.progress import progress_display

    with progress_display("judging") as progress:
        found = judge_constants(verdicts, progress)
    if as_json:
        print_json(constants_json(found))
    else:
        show(left_out_text(found))


def _memory(options: argparse.Namespace) -> None:
    if options.truth is None:
        raise UserError("--truth: missing; give a CSV file of runs with a column peak_mem_gib")
    from predict.validate.memory.comparison import compare_memory
    from predict.validate.memory.summary import as_json
    from predict.validate.published.row import read_rows
    from sampling.progress import progress_display

    rows = list(read_rows(options.truth))
    with progress_display("counting") as progress:
        verdicts = compare_memory(rows, progress)
    if options.json:
        print_json(as_json(verdicts))
        return
    from predict.report.console import show
    from predict.report.published.memory import published_memory_text

    show(published_memory_text(verdicts))


def _ranking(options: argparse.Namespace) -> None:
    if options.truth is None:
        raise UserError("--truth: missing; give a CSV file of measured plans, those out of memory with status oom")
    from predict.validate.published.row import read_rows
    from predict.validate.ranking.group_scores import as_json, judged
    from predict.validate.ranking.plans import measured_plans
    from sampling.progress import progress_display

    rows = list(read_rows(options.truth))
    with progress_display("predicting") as progress:
        plans, left_out = measured_plans(rows, progress)
    if options.widths:
        _plan_setting(plans, as_json=options.json)
        return
    groups, small = judged(plans)
    if options.json:
        print_json(as_json(groups, small, left_out))
        return
    from predict.report.console import show
    from predict.report.published.ranking import ranking_text

    show(ranking_text(groups, small, left_out))


def _plan_setting(groups: Mapping[str, Sequence[MeasuredPlan]], *, as_json: bool) -> None:
    from predict.report.console import show
    from predict.report.published.widths import plan_setting_text
    from predict.validate.learning.plan_setting import learn_plan_setting, plan_setting_json

    learnt = learn_plan_setting(groups)
    if as_json:
        print_json(plan_setting_json(learnt))
    else:
        show(plan_setting_text(learnt))


def _serving(options: argparse.Namespace) -> None:
    if options.truth is None:
        raise UserError("--truth: missing; give the folder of serving_experiments.csv")
    from predict.validate.serving.command import validate_serving

    content = validate_serving(options.truth, options.model, options.coefficients)
    if options.json:
        print_json(content)
        return
    from predict.report.console import show
    from predict.report.published.serving import serving_validation_text

    show(serving_validation_text(content))


def _rl(options: argparse.Namespace) -> None:
    if options.truth is None:
        raise UserError("--truth: missing; give a CSV file of published RL steps, one per row")
    from predict import estimate
    from predict.validate.rl.command import validate_rl

    content = validate_rl(options.truth, estimate)
    if options.json:
        print_json(content)
        return
    from predict.report.console import show
    from predict.report.rl.validation import rl_validation_text

    show(rl_validation_text(content))


def _rl_configs(options: argparse.Namespace) -> None:
    """RL steps of this machine, predicted and then run."""
    require_positive(options, "rounds")
    from predict.report.console import show
    from predict.report.rl.measured import measured_rl_text
    from predict.validate.rl.measured import measured_rl_json, validate_rl_here

    rows = validate_rl_here(options.what, options.overrides, rounds=options.rounds or 3, tell=log)
    content = measured_rl_json(rows)
    if options.json:
        print_json(content)
    else:
        show(measured_rl_text(rows, content["summary"]))


def _serving_configs(options: argparse.Namespace) -> None:
    """Loads of this machine's real server, predicted and then served."""
    from predict.cli.serving.own_loads import run as run_own_loads

    run_own_loads(options)


VALIDATE = {
    "samples": _samples,
    "published": _published,
    "memory": _memory,
    "ranking": _ranking,
    "serving": _serving,
    "rl": _rl,
    "runs": _runs,
    "rl-configs": _rl_configs,
    "serving-configs": _serving_configs,
}
