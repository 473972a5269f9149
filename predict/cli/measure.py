"""`predict measure`: the step run for real on this machine, and timed."""

import argparse
from contextlib import suppress
from pathlib import Path

from predict import estimate, load
from predict.cli import options as cli
from predict.kinds import RL, SERVING, kind_of
from predict.measurement.measure import measure
from predict.measurement.measurement import Measurement
from predict.measurement.pace import Pace, pace_over
from predict.measurement.real_rl import RlMeasurement
from predict.measurement.serving.real_server import ServedLoad
from predict.reports.measurement import FORMS
from predict.reports.text import stacked
from predict.rl.config import load_rl
from sampling.command_line import log
from sampling.errors import Checks, SamplesError, UserError
from sampling.files.faults import counted

EXAMPLES = """\
examples:
  predict measure configs/runs/demo.yml
  predict measure configs/runs/demo.yml --steps 20 --json
  predict measure configs/runs/demo.yml --set plan.schedule=afab
  predict measure configs/serving/this-machine/busy.yml
  predict measure configs/rl/this-machine/grpo.yml
  predict measure configs/runs/demo.yml --trace out/traces
"""


def add_options(command: argparse.ArgumentParser) -> None:
    cli.add_config(command)
    command.add_argument(
        "--steps", type=int, help="timed steps (default: 10 on a CPU, as many as fill 10 s on a GPU, five at least)"
    )
    command.add_argument(
        "--implementation",
        choices=("torch", "transformers"),
        default="torch",
        help="whose model is trained: this project's plain torch one, or the transformers library's (default: torch)",
    )
    command.add_argument(
        "--trace",
        type=Path,
        metavar="DIR",
        help="also record a few steps with torch's profiler, one trace per rank, for `predict explain`",
    )
    cli.add_json(command)


def run(options: argparse.Namespace) -> None:
    cli.require_positive(options, "steps")
    kind = kind_of(options.config)
    if kind == RL:
        _check_rl(options)
    elif kind == SERVING:
        implementation = ["--implementation"] if options.implementation != "torch" else []
        extra = cli.given(options, "steps", "trace") + implementation
        cli.refuse(extra, "does not apply to a serving config, whose load.duration_s says how long; omit it")
    else:
        cli.require_folder("--trace", options.trace)
    found = measure(
        options.config,
        options.overrides,
        steps=options.steps,
        implementation=options.implementation,
        trace=options.trace,
    )
    pace = None if isinstance(found, ServedLoad) else _pace(options, found)
    to_json, to_text = FORMS[type(found)]
    cli.print_answer(
        options,
        found,
        lambda one: to_json(one) | ({"pace": pace.to_json()} if pace else {}),
        lambda one: stacked(to_text(one), *([f"  {pace}"] if pace else [])),
    )
    if options.trace:
        assert isinstance(found, Measurement)
        log(f"wrote a trace of {counted(len(found.traced_us), 'step')} of each rank to {options.trace}")


def _pace(options: argparse.Namespace, found: Measurement | RlMeasurement) -> Pace | None:
    """The machine's pace beside the steps; of an RL step by the training step of the same model. None without usable rows."""
    if isinstance(found, Measurement):
        run = load(options.config, options.overrides)
    else:
        run = load_rl(options.config, options.overrides).base
    with suppress(SamplesError):
        return pace_over(estimate(run, require_fit=False), found.references)
    return None


def _check_rl(options: argparse.Namespace) -> None:
    """UserError for options that a step of reinforcement learning does not take."""
    with Checks() as checks:
        with checks.one():
            if options.implementation != "torch":
                raise UserError(
                    f"--implementation {options.implementation}: an RL step runs in this project's plain torch; omit it"
                )
        with checks.one():
            if options.trace:
                raise UserError("--trace: an RL step is not traced; omit it")
