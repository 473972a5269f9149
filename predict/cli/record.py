"""`predict record`: keep a measured run of a cluster, with what was predicted of it."""

import argparse
from dataclasses import asdict

from predict.cli.options import add_data, add_json, add_overrides, given, print_json, refuse
from predict.measured_runs.records import (
    KeptRecord,
    MeasuredJob,
    id_of,
    measured_job,
    outlier_reasons,
    past_date,
    record,
    record_job,
    records,
    remove,
)
from predict.reports.diagnosis import verdict_line
from predict.serialise import picked, version_of, versioned
from sampling.command_line import log
from sampling.errors import Checks, UserError
from sampling.files.schema import keys_of
from sampling.number_text import duration, signed_percent

EXAMPLES = """\
examples:
  predict record configs/runs/llama3-70b-64xh100.yml --log train.log
  predict record configs/runs/llama3-70b-64xh100.yml --log 14.9s --date 2026-03-12 --cluster pod-a
  predict record configs/runs/llama3-70b-64xh100.yml --job hours=900 --job failures=4 --job restart_min=20
  predict record --remove 3f2a91c      take the run of that id away; `predict history` lists the ids
"""
DESCRIPTION = """\
Keep a measured run, and what is predicted of it, in runs/CLUSTER of your data: a small file for each. `predict history` prints the error
over time, and drift.
"""
DOUBTED = (
    ". It is kept, but `predict history` does not count it until another run of this config takes about as long; if it is wrong, take it away "
    "with `predict record --remove {}`"
)
BORNE_OUT = ". `predict history` counts it all the same: another run of this config took about as long"


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("config", metavar="CONFIG", nargs="?", help="run config (YAML) of the measured run")
    add_overrides(command)
    add_data(command, made=True)
    command.add_argument(
        "--log",
        metavar="FILE|TIME",
        help="a log of Megatron, NeMo, torchtitan, DeepSpeed or transformers' Trainer, a file of `predict measure --json`, or the time of "
        "a step, such as 3.2s",
    )
    command.add_argument(
        "--job",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help=f"in place of --log, what a whole job measured: {', '.join(key.name for key in keys_of(MeasuredJob))}; may be repeated; "
        "`predict job --recorded` takes it",
    )
    command.add_argument(
        "--cluster", metavar="NAME", help="the folder to keep it in (default: the cluster's file, else its profile)"
    )
    command.add_argument(
        "--date", metavar="DATE", help="when it was measured, such as 2026-03-12 (default: the log's, else now)"
    )
    command.add_argument(
        "--remove", metavar="ID", help="take a recorded run away instead; `predict history` lists its id"
    )
    add_json(command)


def run(options: argparse.Namespace) -> None:
    if options.remove is not None:
        _remove(options)
        return
    with Checks() as checks:
        checks.run(refuse, given(options, "log") if options.job else [], "cannot be combined with --job; omit it")
        of_log = options.log is None and not options.job
        for name, lacking in (("CONFIG", options.config is None), ("--log", of_log)):
            if lacking:
                checks.run(_lacking, name)
        checks.run(past_date, "--date", options.date)
        with checks.one():
            measured = measured_job(options.job) if options.job else None
    if measured is not None:
        _keep_job(options, measured)
        return
    kept = record(options.config, options.overrides, log=options.log, cluster=options.cluster, date=options.date)
    _print(options, kept)


def _remove(options: argparse.Namespace) -> None:
    refuse(given(options, "config", "log", "job", "date", "overrides"), "cannot be combined with --remove; omit it")
    place = remove(options.remove, options.cluster)
    if options.json:
        print_json({"version": version_of("record"), "removed": str(place)})
    log(f"removed {place}")


def _keep_job(options: argparse.Namespace, measured: MeasuredJob) -> None:
    place = record_job(options.config, options.overrides, measured=measured, cluster=options.cluster, date=options.date)
    if options.json:
        print_json(versioned("record", {"file": place, "measured": measured}))
    log(f"wrote {place}")


def _print(options: argparse.Namespace, kept: KeptRecord) -> None:
    one, place, new = kept.record, kept.file, kept.new
    if options.json:
        judged = picked(kept.judgement, "verdict normal_probability")
        print_json({"version": version_of("record"), "file": str(place), "new": new, **asdict(one), **judged})
    else:
        print(
            f"{one.run} on {one.cluster}, {one.date[:10]}: measured {duration(one.measured.step_us)}, predicted "
            f"{duration(one.predicted.median_us)} (error {signed_percent(one.error)}{'' if one.covered else ', outside its interval'})"
        )
        print(verdict_line(kept.judgement))
    if kept.doubt and new:
        found = dict(records(one.cluster, log))
        stands = dict(zip(found, outlier_reasons([*found.values()]), strict=True))[place]
        log(f"--log: {kept.doubt}{DOUBTED.format(id_of(place)) if stands else BORNE_OUT}")
    if kept.like:
        log(
            f"{one.cluster} has this run with the same step already ({', '.join(kept.like)}); this one is kept too: if it is the same, take one "
            "away with `predict record --remove ID`"
        )
    log(f"{'wrote' if new else 'recorded before:'} {place}; from {one.measured.source}")


def _lacking(name: str) -> None:
    raise UserError(
        f"{name}: missing; give for example CONFIG --log train.log, CONFIG --job hours=900 --job failures=4, or --remove ID"
    )
