"""`predict sweep`: a config under every combination of some keys' values."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from predict import estimate
from predict.cli import options as cli
from predict.kinds import ServerOptions, kind, kind_of
from predict.plan_search.long_table import columns, long_table, write_table
from predict.plan_search.sweep import SweepSpace, require_objective, swept_space
from predict.reports.sweep import sweep_json, sweep_text
from predict.reports.text import show
from sampling.command_line import log
from sampling.errors import Checks, UserError
from sampling.extras import require_library
from sampling.hardware.this_device import code_version
from sampling.progress import Progress, progress_display, silent

EXAMPLES = """\
examples:
  predict sweep configs/runs/llama3-70b-64xh100.yml --vary batch.seq_len=2k..32k --vary batch.micro=1,2
  predict sweep configs/runs/llama3-70b-64xh100.yml --vary plan.tp=2,4,8 --output out/sweep.csv
  predict sweep configs/rl/qwen3-30b-a3b-grpo.yml --vary rl.n=8,16,32 --vary rl.rollout.tp=2,4 --output out/rl.csv
  predict sweep configs/serving/llama3-8b-h100.yml --vary placement.tp=1,2,4 --vary engine.max_num_seqs=64,256 --objective gpu-time
  predict sweep configs/runs/deepseek-v3-1024xh100.yml --vary execution.dispatch=alltoall,deepep --json
"""
DESCRIPTION = """\
Predict a config under every combination of some keys' values.

A value list is A,B,C; A..B doubles from A up to B, A..B..STEP counts; k stands for 1024. dp takes the ranks that are left where
the plan's other degrees or the nodes vary and it does not. --output writes the long table, one row per combination: CSV, or Parquet
where the name ends in .parquet. A combination that cannot run keeps its reason.

A row of a serving config has its latencies, the rate that it carries, and what --slo and --price ask.
"""
PARQUET = ".parquet"
SUFFIXES = (".csv", PARQUET)


def add_options(command: argparse.ArgumentParser) -> None:
    cli.add_config(command)
    command.add_argument(
        "--vary", action="append", default=[], metavar="KEY=VALUES", help="a key and its values; may be repeated"
    )
    command.add_argument("--output", type=Path, metavar="FILE", help="write the long table: .csv or .parquet")
    command.add_argument(
        "--objective",
        metavar="NAME",
        help="print the best first, by what `predict search --objective` takes: time, cost, memory, energy or mfu of training runs; throughput "
        "of RL steps; gpu-time (per request at the rate that is carried), cost (money per output token there, with --price), rate (that rate), "
        "e2e, ttft or tpot of servers",
    )
    of_serving = command.add_argument_group("of a serving config")
    cli.add_serving_questions(of_serving)
    cli.add_step_model(of_serving)
    cli.add_json(command)


def run(options: argparse.Namespace) -> None:
    space = _checked_space(options)
    with progress_of_combinations("sweep", options.config) as progress:
        found = space.rows(progress)
    cli.log_not_read(space.kind.not_read(found.predictions[0]))
    if options.objective:
        found = found.ordered(options.objective)
    if options.output is not None or options.json:
        rows = long_table(found, commit=code_version())
    if options.output is not None:
        with cli.writing("--output", options.output):
            write_table(options.output, rows, columns(found))
        log(f"wrote {options.output}")
    if options.json:
        cli.print_json(sweep_json(found, rows))
    else:
        show(sweep_text(found, options.objective))


def _checked_space(options: argparse.Namespace) -> SweepSpace[Any]:
    """The space to sweep; UserError with every fault of the options."""
    with Checks() as checks:
        with checks.one():
            if not options.vary:
                raise UserError("--vary: missing; give a key and its values, for example --vary batch.micro=1,2,4")
        with checks.one():
            space = swept_space(options.config, options.vary, options.overrides, estimate, server_options(options))
        checks.run(require_objective, kind(kind_of(options.config)), options.objective, options.price)
        checks.run(cli.require_output, "--output", options.output, SUFFIXES)
        if options.output is not None and options.output.suffix.lower() == PARQUET:
            checks.run(require_library, "pyarrow")
    return space


def server_options(options: argparse.Namespace) -> ServerOptions:
    """The questions on servers that the command line asks."""
    return ServerOptions(
        slo=options.slo, price=options.price, model=options.model or "", coefficients=options.coefficients
    )


@contextmanager
def progress_of_combinations(label: str, config: str) -> Iterator[Progress]:
    """Yields the function that shows progress; it shows nothing where predictions take no time to speak of and nobody looks."""
    if not (kind(kind_of(config)).shows_progress or sys.stderr.isatty()):
        yield silent
        return
    with progress_display(label) as shown:
        yield shown
