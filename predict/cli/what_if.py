"""`predict what-if`: a traced step replayed under another plan, or with a faster kernel or link."""

import argparse

from predict.cli.explain import add_traced_step
from predict.cli.options import add_config, add_json, print_answer
from predict.measured_runs.replay.replay import what_if
from predict.reports.explanation import replay_json, replay_text
from sampling.command_line import log
from sampling.errors import Checks, UserError
from sampling.number_text import as_given

EXAMPLES = """\
examples:
  predict what-if configs/runs/demo.yml --trace out/traces --set batch.micro=4
  predict what-if configs/runs/demo.yml --trace out/traces --kernel attention=0.5
  predict what-if configs/runs/llama3-70b-64xh100.yml --trace out/traces --link-speed 2 --json
"""
DESCRIPTION = """\
Replay the step that a trace shows, as CONFIG describes it, with the changes of --set: a call that the trace shows costs what it cost
there, one of another shape its model's time at the pace of the trace, and the schedule is simulated anew. The table shows for each term
what is replayed, modelled or carried over, next to what the models alone say.
"""


def add_options(command: argparse.ArgumentParser) -> None:
    add_config(command)
    add_traced_step(command, "traces of CONFIG as it stands, as for `predict explain`")
    command.add_argument(
        "--kernel",
        action="append",
        default=[],
        metavar="NAME=FACTOR",
        help="multiply the time of a heading of the ledger, as in --kernel attention=0.5; may be repeated",
    )
    command.add_argument(
        "--link-speed", type=float, default=1.0, metavar="FACTOR", help="links that are FACTOR times as fast"
    )
    add_json(command)


def run(options: argparse.Namespace) -> None:
    kernels: dict[str, float] = {}
    with Checks() as checks:
        for each in options.kernel:
            with checks.one():
                kernels |= [_factor(each)]
        with checks.one():
            if not options.link_speed > 0:
                raise UserError(f"--link-speed: {as_given(options.link_speed)} is not above 0; give for example 2")
    found = what_if(
        options.config,
        options.overrides,
        trace=options.trace,
        log=options.log,
        kernels=kernels,
        link_speed=options.link_speed,
        report=log,
    )
    print_answer(options, found, replay_json, replay_text)


def _factor(given: str) -> tuple[str, float]:
    name, _, value = given.partition("=")
    try:
        factor = float(value)
    except ValueError:
        factor = 0.0
    if not (name and 0 < factor < float("inf")):
        raise UserError(f"--kernel: {given!r} is not NAME=FACTOR with a factor above 0; give for example attention=0.5")
    return name, factor
