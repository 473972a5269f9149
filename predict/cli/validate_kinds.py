"""Each kind of `predict validate`: configs run here, rows held out, and tables that others measured."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from predict.cli.options import check_fit, log, print_json
from sampling.errors import UserError
from sampling.store.profiles import OWN

if TYPE_CHECKING:
    from predict.validation.published import Comparison
    from predict.validation.ranking import MeasuredPlan


GPU = "this-gpu"


def runs(options: argparse.Namespace) -> None:
    here = options.what[0] if options.what in ([OWN], [GPU]) else ""
    overrides = _overrides(options, here=here)
    from predict.reports.measured.validation import validation_text
    from predict.reports.memory import misfit
    from predict.reports.text import show
    from predict.validation.here import (
        ValidatedRun,
        notes_on,
        predictions_of,
        runs_of_this_machine,
        validate,
        validation_json,
    )
    from predict.validation.sessions import (
        against_sessions,
        keep,
        kept_file,
        named_profiles,
        runs_of_this_gpu,
        settings_of_this_gpu,
        steps_of_sessions,
    )

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
    from predict.validation.sessions import PROFILE_KEY

    return [*options.overrides, *([PROFILE_KEY + options.profile] if options.profile else [])]


def samples(options: argparse.Namespace) -> None:
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
    if options.json:
        print_json(content)
        return
    from predict.reports.text import show

    show(as_text(content))


def published(options: argparse.Namespace) -> None:
    from predict.validation.published import validate_published

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
        from predict.validation.published_scores import published_json

        print_json(published_json(verdicts) | ({"calibration": asdict(calibration)} if calibration else {}))
        return
    from predict.reports.published.steps import published_text
    from predict.reports.text import show

    show(published_text(verdicts, calibration))


def _widths(verdicts: Sequence[Comparison], *, as_json: bool) -> None:
    from predict.reports.published.widths import widths_text
    from predict.reports.text import show
    from predict.validation.widths import learn_widths, widths_json

    learnt = learn_widths(verdicts)
    if as_json:
        print_json(widths_json(learnt))
    else:
        show(widths_text(learnt))


def _left_out(verdicts: Sequence[Comparison], *, as_json: bool) -> None:
    from predict.reports.published.left_out import left_out_text
    from predict.reports.text import show
    from predict.validation.left_out import constants_json, judge_constants
    from sampling.progress import progress_display

    with progress_display("judging") as progress:
        found = judge_constants(verdicts, progress)
    if as_json:
        print_json(constants_json(found))
    else:
        show(left_out_text(found))


def memory(options: argparse.Namespace) -> None:
    if options.truth is None:
        raise UserError("--truth: missing; give a CSV file of runs with a column peak_mem_gib")
    from predict.validation.memory import compare_memory, memory_json
    from predict.validation.published_row import read_rows
    from sampling.progress import progress_display

    rows = list(read_rows(options.truth))
    with progress_display("counting") as progress:
        verdicts = compare_memory(rows, progress)
    if options.json:
        print_json(memory_json(verdicts))
        return
    from predict.reports.published.memory import published_memory_text
    from predict.reports.text import show

    show(published_memory_text(verdicts))


def ranking(options: argparse.Namespace) -> None:
    if options.truth is None:
        raise UserError("--truth: missing; give a CSV file of measured plans, those out of memory with status oom")
    from predict.validation.published_row import read_rows
    from predict.validation.ranking import judged, measured_plans, ranking_json
    from sampling.progress import progress_display

    rows = list(read_rows(options.truth))
    with progress_display("predicting") as progress:
        plans, left_out = measured_plans(rows, progress)
    if options.widths:
        _plan_setting(plans, as_json=options.json)
        return
    groups, small = judged(plans)
    if options.json:
        print_json(ranking_json(groups, small, left_out))
        return
    from predict.reports.published.ranking import ranking_text
    from predict.reports.text import show

    show(ranking_text(groups, small, left_out))


def _plan_setting(groups: Mapping[str, Sequence[MeasuredPlan]], *, as_json: bool) -> None:
    from predict.reports.published.widths import plan_setting_text
    from predict.reports.text import show
    from predict.validation.widths import learn_plan_setting, plan_setting_json

    learnt = learn_plan_setting(groups)
    if as_json:
        print_json(plan_setting_json(learnt))
    else:
        show(plan_setting_text(learnt))


def serving(options: argparse.Namespace) -> None:
    if options.truth is None:
        raise UserError("--truth: missing; give the folder of serving_experiments.csv")
    from predict.validation.serving_scores import validate_serving

    content = validate_serving(options.truth, options.model, options.coefficients)
    if options.json:
        print_json(content)
        return
    from predict.reports.published.serving import serving_validation_text
    from predict.reports.text import show

    show(serving_validation_text(content))


def rl(options: argparse.Namespace) -> None:
    if options.truth is None:
        raise UserError("--truth: missing; give a CSV file of published RL steps, one per row")
    from predict import estimate
    from predict.validation.rl import validate_rl

    content = validate_rl(options.truth, estimate)
    if options.json:
        print_json(content)
        return
    from predict.reports.rl.validation import rl_validation_text
    from predict.reports.text import show

    show(rl_validation_text(content))


def rl_configs(options: argparse.Namespace) -> None:
    """RL steps of this machine, predicted and then run."""
    from predict.reports.rl.measured import measured_rl_text
    from predict.reports.text import show
    from predict.validation.rl_here import measured_rl_json, validate_rl_here

    rows = validate_rl_here(options.what, options.overrides, rounds=options.rounds or 3, tell=log)
    content = measured_rl_json(rows)
    if options.json:
        print_json(content)
    else:
        show(measured_rl_text(rows, content["summary"]))


def serving_configs(options: argparse.Namespace) -> None:
    """Loads of this machine's real server, predicted and then served."""
    from predict.reports.serving.own_loads import own_loads_text
    from predict.reports.text import show
    from predict.serving.coefficients import read_coefficients
    from predict.validation.own_loads import ROUNDS, validate_loads

    content = validate_loads(
        options.what,
        options.overrides,
        rounds=options.rounds or ROUNDS,
        coefficients=read_coefficients(options.coefficients) if options.coefficients else None,
        tell=log,
    )
    if options.json:
        print_json(content)
    else:
        show(own_loads_text(content))
