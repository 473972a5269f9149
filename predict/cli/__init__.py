"""The command `predict`: parse, call, render. Exit codes: 0 ok, 2 usage or config, 3 samples, 4 infeasible."""

from __future__ import annotations

import argparse
import errno
import json
import os
import sys
from collections.abc import Callable, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from predict.cli import benchmark as cli_benchmark
from predict.cli import memory as cli_memory
from predict.cli import schedule as cli_schedule
from predict.cli import validate as cli_validate
from predict.cli.common import print_json, require_positive
from sampling.errors import UserError

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
"""


def parser() -> argparse.ArgumentParser:
    commands = argparse.ArgumentParser(
        prog="predict",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    subcommands = commands.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for add in (
        _add_one_batch,
        _add_schedule,
        _add_memory,
        _add_calls,
        _add_measure,
        _add_benchmark,
        cli_validate.add,
        _add_schema,
    ):
        add(subcommands)
    return commands


Subcommands = Any


def _add_one_batch(subcommands: Subcommands) -> None:
    command = subcommands.add_parser("one-batch", help="predict the time of one training step")
    _takes_config(command)
    command.add_argument("--json", action="store_true", help="machine-readable result on stdout")
    command.add_argument(
        "--require-measured", action="store_true", help="exit with 3 unless samples cover all of the step's work"
    )
    cli_benchmark.add_options(command)
    command.set_defaults(run=_one_batch)


def _add_schedule(subcommands: Subcommands) -> None:
    cli_schedule.add(subcommands, _takes_overrides)


def _add_memory(subcommands: Subcommands) -> None:
    cli_memory.add(subcommands, _takes_config)


def _add_benchmark(subcommands: Subcommands) -> None:
    cli_benchmark.add(subcommands, _takes_config)


def _add_calls(subcommands: Subcommands) -> None:
    command = subcommands.add_parser("calls", help="write the calls that runs need, for `python -m sampling --calls`")
    command.add_argument("configs", nargs="+", metavar="CONFIG", help="run configs (YAML)")
    command.add_argument("--output", type=Path, metavar="FILE", help="write there instead of stdout")
    command.set_defaults(run=_calls)


def _add_measure(subcommands: Subcommands) -> None:
    command = subcommands.add_parser("measure", help="run the step for real on this machine and time it")
    _takes_config(command)
    command.add_argument("--steps", type=int, default=10, help="timed steps (default: %(default)s)")
    command.add_argument(
        "--implementation",
        choices=("torch", "transformers"),
        default="torch",
        help="whose model is trained: this project's plain torch one, or the transformers library's (default: torch)",
    )
    command.add_argument("--json", action="store_true", help="machine-readable result on stdout")
    command.set_defaults(run=_measure)


def _add_schema(subcommands: Subcommands) -> None:
    command = subcommands.add_parser("schema", help="print the JSON Schema of a run config")
    command.set_defaults(run=_schema)


def _takes_config(command: argparse.ArgumentParser) -> None:
    command.add_argument("config", metavar="CONFIG", help="run config (YAML); `predict schema` describes it")
    _takes_overrides(command)


def _takes_overrides(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--set",
        dest="overrides",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a key, as in --set plan.tp=2; may be repeated",
    )


def _one_batch(options: argparse.Namespace) -> None:
    cli_benchmark.show_estimates(cli_benchmark.predicted(options), as_json=options.json)


def _calls(options: argparse.Namespace) -> None:
    from predict.config.load import load
    from predict.workload.decompose import requests_of_runs
    from sampling.choosing.calls_file import calls_file_content

    runs = [load(config) for config in options.configs]
    hardware = sorted({run.cluster.gpu.name for run in runs})
    if len(hardware) > 1:
        raise UserError(
            f"cluster.hardware: the runs are on {' and '.join(hardware)}; write the calls of each by itself"
        )
    content = json.dumps(calls_file_content(requests_of_runs(runs), hardware[0]), indent=1)
    if options.output is None:
        print(content)
        return
    try:
        options.output.write_text(content + "\n")
    except OSError as error:
        raise UserError(f"--output: {options.output} cannot be written ({error.strerror}); give another path") from None


def _measure(options: argparse.Namespace) -> None:
    require_positive("--steps", options.steps)
    from predict.config.load import load
    from predict.measure.real_step import measure
    from predict.report.measurement import measurement_text

    result = measure(
        load(options.config, options.overrides), steps=options.steps, implementation=options.implementation
    )
    if options.json:
        print_json(result.to_json())
    else:
        print(measurement_text(result))


def _schema(options: argparse.Namespace) -> None:
    from predict.config.json_schema import json_schema

    print_json(json_schema())


def main(arguments: Sequence[str] | None = None) -> int:
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal or pipe that is not UTF-8 shows ? for what it lacks
    options = parser().parse_args(arguments)
    run: Callable[[argparse.Namespace], None] = options.run
    try:
        run(options)
        sys.stdout.flush()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        _drop_stdout()  # the reader of a pipe left early
        return 0
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO) or error.filename is not None:
            raise
        _drop_stdout()
        print(f"error: stdout: {error.strerror}; make room, or send the result elsewhere", file=sys.stderr)
        return UserError.exit_code
    return 0


def _drop_stdout() -> None:
    """Keep Python from complaining about it again on exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
