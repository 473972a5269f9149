"""`predict validate`: predictions held against what was measured here, held out, or published."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from predict.cli.common import note, print_json, require_positive
from sampling.errors import UserError


def add(subcommands: Any) -> None:
    command = subcommands.add_parser("validate", help="hold predictions against measured steps")
    command.add_argument(
        "what",
        metavar="this-machine|samples|published|memory|CONFIG",
        nargs="+",
        help="this-machine: the runs of configs/runs/this-machine, whose figures are kept in data/published; samples: the "
        "time models on rows held out, whose tables are kept in benchmarks; published: measured runs that others printed; memory: their measured peaks; or configs",
    )
    command.add_argument(
        "--truth", type=Path, metavar="FILE", help="published, memory: a CSV file of measured runs, one a row"
    )
    command.add_argument("--profile", default="", metavar="NAME", help="published: the samples to price all rows from")
    command.add_argument(
        "--calibrate-on",
        type=Path,
        metavar="FILE",
        help="published: fit a handful of bounded terms to the runs of a CSV file, write them to --calibration, use them",
    )
    command.add_argument("--calibration", type=Path, metavar="FILE", help="published: use, or write, these terms")
    command.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="samples: published measurements to judge too, a folder with estimate-train-time/ or aiconfigurator/",
    )
    command.add_argument(
        "--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE", help="override a key in every run"
    )
    command.add_argument("--rounds", type=int, default=3, help="interleaved rounds of measuring (default: %(default)s)")
    command.add_argument("--json", action="store_true", help="machine-readable result on stdout")
    command.set_defaults(run=_validate)


def _validate(options: argparse.Namespace) -> None:
    if options.what == ["samples"]:
        _validate_samples(options)
        return
    if options.what == ["published"]:
        _validate_published(options)
        return
    if options.what == ["memory"]:
        _validate_memory(options)
        return
    for name in ("truth", "profile", "calibrate_on", "calibration"):
        if getattr(options, name):
            raise UserError(f"--{name.replace('_', '-')}: goes with `predict validate published` alone; leave it away")
    if options.data:
        raise UserError("--data: goes with `predict validate samples` alone; leave it away")
    require_positive("--rounds", options.rounds)
    from predict.validate.hold_out import validation_json
    from predict.validate.this_machine import Trial, trials_of_this_machine, validate

    here = options.what == ["this-machine"]
    trials = (
        trials_of_this_machine()
        if here
        else [Trial(config=Path(name), implementation="torch") for name in options.what]
    )
    rows = validate(trials, overrides=options.overrides, rounds=options.rounds, tell=note)
    content = validation_json(rows)
    if here:
        from predict.prices.profile_error import validation_path
        from sampling.files.disk import write_atomically

        write_atomically(validation_path("this-machine"), json.dumps(content, indent=1).encode())
    if options.json:
        print_json(content)
        return
    from predict.report.console import show
    from predict.report.validation import validation_text

    show(validation_text(rows))


def _validate_samples(options: argparse.Namespace) -> None:
    if options.overrides:
        raise UserError("--set: `predict validate samples` reads no config; leave it away")
    from regressors.accuracy.benchmark import benchmark
    from regressors.accuracy.report import as_markdown, as_text
    from sampling.files.disk import write_atomically
    from sampling.store.profiles import DATA

    content = benchmark(DATA / "samples", options.data)
    kept = DATA.parent / "benchmarks" / "accuracy.json"
    write_atomically(kept, json.dumps(content, indent=1).encode())
    write_atomically(kept.with_suffix(".md"), as_markdown(content).encode())
    if options.json:
        print_json(content)
        return
    from predict.report.console import show

    show(as_text(content))


def _validate_published(options: argparse.Namespace) -> None:
    if options.overrides or options.data:
        raise UserError("--set, --data: `predict validate published` reads no config and no samples; leave them away")
    from predict.validate.published.command import validate_published

    verdicts, calibration = validate_published(
        truth=options.truth,
        profile=options.profile,
        calibrate_on=options.calibrate_on,
        calibration=options.calibration,
        tell=note,
    )
    if options.json:
        from predict.validate.published.judge import as_json

        print_json(as_json(verdicts) | ({"calibration": calibration} if calibration else {}))
        return
    from predict.report.console import show
    from predict.report.published import published_text

    show(published_text(verdicts, calibration))


def _validate_memory(options: argparse.Namespace) -> None:
    given = [name for name in ("overrides", "data", "profile", "calibrate_on", "calibration") if getattr(options, name)]
    if given or options.truth is None:
        raise UserError(
            "validate memory: takes --truth FILE, a CSV file of runs with a column peak_mem_gib, and --json alone"
        )
    from predict.validate.published.memory import as_json, judge_memory
    from predict.validate.published.row import read_rows
    from sampling.progress import progress_display

    rows = list(read_rows(options.truth))
    with progress_display("counting") as progress:
        verdicts = judge_memory(rows, progress)
    if options.json:
        print_json(as_json(verdicts))
        return
    from predict.report.console import show
    from predict.report.published_memory import published_memory_text

    show(published_memory_text(verdicts))
