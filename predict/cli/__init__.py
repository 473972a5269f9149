"""The command `predict`: the list of its commands, and main(). Exit codes: 0 ok, 1 bug, 2 usage or config, 3 samples, 4 infeasible."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Callable, Sequence
from io import TextIOWrapper

from predict.cli import benchmark, calls, measure, memory, one_batch, schedule, schema, validate
from predict.cli.options import use_data
from sampling.errors import UserError
from sampling.extras import naming_extras

COMMANDS = (one_batch, schedule, memory, calls, measure, benchmark, validate, schema)
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
    predict = argparse.ArgumentParser(
        prog="predict",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    subcommands = predict.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add(subcommands)
    return predict


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal or pipe that is not UTF-8 shows ? for what it lacks
    options = parser().parse_args(arguments)
    run: Callable[[argparse.Namespace], None] = options.run
    try:
        use_data(options)
        with naming_extras():
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
    """Keep Python from complaining about stdout again on exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
