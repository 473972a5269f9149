"""The command `predict`: the list of its commands, and main()."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from io import TextIOWrapper

from predict.cli import (
    benchmark,
    calibrate,
    calls,
    compare,
    days,
    doctor,
    explain,
    explore,
    export,
    history,
    import_config,
    ledger,
    measure,
    memory,
    one_batch,
    plot,
    record,
    report,
    rl_step,
    schedule,
    schema,
    search,
    sensitivity,
    serving,
    serving_fit,
    serving_step,
    speed_of_light,
    sweep,
    trace,
    validate,
    what_if,
)
from predict.cli.arguments import Parser
from predict.cli.options import use_data
from sampling.command_line import exit_code_of

COMMANDS = (
    one_batch,
    ledger,
    speed_of_light,
    search,
    schedule,
    memory,
    sweep,
    compare,
    sensitivity,
    days,
    report,
    plot,
    explore,
    trace,
    export,
    import_config,
    calls,
    measure,
    benchmark,
    serving,
    serving_step,
    serving_fit,
    rl_step,
    calibrate,
    explain,
    what_if,
    record,
    history,
    validate,
    schema,
    doctor,
)
DESCRIPTION = "Predict how long a training step takes, with an error bar and a ledger of where the time goes."
EXAMPLES = """\
examples:
  predict one-batch configs/runs/demo.yml
  predict one-batch configs/runs/demo.yml --set plan.pp=1 --set plan.tp=2 --json
  predict schedule --pp 8 --microbatches 32      compare pipeline schedules
  predict memory configs/runs/llama3-70b-64xh100.yml   does it fit, and what would make it fit
  predict measure configs/runs/demo.yml          run the same step for real
  predict benchmark configs/runs/demo.yml --gpus 1 --output bench.json
  predict one-batch configs/runs/demo.yml --benchmark bench.json
  predict validate this-machine                  predict, then measure, a dozen runs
  predict one-batch --model llama3-70b --gpus 64xh100   without a config
  predict sweep configs/runs/llama3-70b-64xh100.yml --vary batch.micro=1,2,4   what if
  predict doctor                                 what is installed, and what is stale
"""


class _Version(argparse.Action):
    """The option --version, which looks the version up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object, **__: object) -> None:
        from predict.doctor.installation import PROGRAM, program_version

        print(PROGRAM, program_version())
        parser.exit()


def parser() -> argparse.ArgumentParser:
    predict = Parser(
        prog="predict",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    predict.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    subcommands = predict.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add(subcommands)
    return predict


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal or pipe that is not UTF-8 shows ? for what it lacks

    def work() -> int:
        options = parser().parse_args(arguments)
        use_data(options)
        options.run(options)
        return 0

    return exit_code_of(work)
