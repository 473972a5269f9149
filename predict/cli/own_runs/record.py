"""`predict record`: keep a measured run of a cluster, with what was predicted of it."""

from __future__ import annotations

import argparse
from datetime import datetime
from pathlib import Path
from typing import Any

from predict.cli.options import add_command, add_config, add_json, loaded, log, print_json
from sampling.errors import UserError
from sampling.number_text import signed_percent

EXAMPLES = """\
examples:
  predict record configs/runs/llama3-70b-64xh100.yml --log train.log
  predict record configs/runs/llama3-70b-64xh100.yml --log 14.9s --date 2026-03-12 --cluster pod-a
"""
DESCRIPTION = """\
Keep a measured run, and what is predicted of it, in runs/CLUSTER of your data: a small file for each. `predict history` tells the error
over time, and drift.
"""


def add(subcommands: Any) -> None:
    command = add_command(subcommands, "record", "keep a measured run of a cluster", EXAMPLES, description=DESCRIPTION)
    add_config(command)
    command.add_argument(
        "--log",
        required=True,
        metavar="FILE|TIME",
        help="a log of Megatron, NeMo, torchtitan, DeepSpeed or transformers' Trainer, a file of `predict measure --json`, or the time of "
        "a step, such as 3.2s",
    )
    command.add_argument(
        "--cluster", metavar="NAME", help="the folder to keep it in (default: the cluster's file, else its profile)"
    )
    command.add_argument(
        "--date", metavar="DATE", help="when it was measured, such as 2026-03-12 (default: as the log tells, else now)"
    )
    add_json(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    from dataclasses import asdict, replace

    from predict import estimate
    from predict.config.load import cluster_file
    from predict.own_runs.belonging import unit_mistake
    from predict.own_runs.measured_step import measured_step
    from predict.own_runs.records import keep, record_of
    from sampling.number_text import duration

    date = _date(options.date)
    uncalibrated = loaded(options, ["cluster.calibration=null"])
    step = measured_step(options.log, uncalibrated, option="--log")
    file = cluster_file(Path(options.config), options.overrides)
    cluster = options.cluster or (file.stem if file else uncalibrated.cluster.profile)
    prediction = estimate(loaded(options), require_fit=False)
    if mistaken := unit_mistake(step.step_us / prediction.median_us):
        raise UserError(
            f"--log: {step.source}: {duration(step.step_us)} a step is about {mistaken} the {duration(prediction.median_us)} that are predicted; "
            "check the unit, and that it is of this run"
        )
    now = datetime.now().isoformat(timespec="seconds")
    record = record_of(uncalibrated, cluster, replace(step, date=date or step.date), prediction, now)
    place, new = keep(record)
    if options.json:
        print_json({"version": 1, "file": str(place), "new": new, **asdict(record)})
    else:
        print(
            f"{record.run} on {cluster}, {record.date[:10]}: measured {duration(record.measured.step_us)}, predicted "
            f"{duration(record.predicted.median_us)} ({signed_percent(record.error)}{'' if record.covered else ', outside its interval'})"
        )
    log(f"{'wrote' if new else 'recorded before:'} {place}; from {record.measured.source}")


def _date(text: str | None) -> str:
    """The date in ISO 8601; empty where none is given."""
    if not text:
        return ""
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        raise UserError(f"--date: {text!r} is not a date; give it as in 2026-03-12 or 2026-03-12T10:22") from None
    if date.astimezone() > datetime.now().astimezone():
        raise UserError(f"--date: {text} is in the future; give the day of the run")
    return date.isoformat(timespec="seconds")
