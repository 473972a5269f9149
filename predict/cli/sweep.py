"""`predict sweep`: a config under every combination of some keys' values."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from predict.cli.options import (
    add_config,
    add_json,
    add_serving_questions,
    add_step_model,
    log,
    print_json,
    require_no_questions,
    require_output,
    writing,
)
from sampling.errors import Checks, UserError
from sampling.extras import require_library

EXAMPLES = """\
examples:
  predict sweep configs/runs/llama3-70b-64xh100.yml --vary batch.seq_len=2k..32k --vary batch.micro=1,2
  predict sweep configs/runs/llama3-70b-64xh100.yml --vary plan.tp=2,4,8 --output sweep.csv
  predict sweep configs/rl/qwen3-30b-a3b-grpo.yml --vary rl.n=8,16,32 --vary rl.rollout.tp=2,4 --output rl.csv
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
ROWS_BETWEEN = 50
"""Rows between two lines of progress."""


def add_options(command: argparse.ArgumentParser) -> None:
    add_config(command)
    command.add_argument(
        "--vary", action="append", default=[], metavar="KEY=VALUES", help="a key and its values; may be repeated"
    )
    command.add_argument("--output", type=Path, metavar="FILE", help="write the long table: .csv or .parquet")
    of_serving = command.add_argument_group("of a serving config")
    add_serving_questions(of_serving)
    add_step_model(of_serving)
    of_serving.add_argument(
        "--objective",
        metavar="NAME",
        help="print the best first: gpu-time (per request at the rate that is carried), cost (money per output token there, with --price), "
        "rate (that rate), e2e, ttft or tpot",
    )
    add_json(command)


def run(options: argparse.Namespace) -> None:
    from predict.kinds import RL, SERVING, kind_of

    of_rl, of_serving = kind_of(options.config) == RL, kind_of(options.config) == SERVING
    with Checks() as checks:
        checks.run(_check, options, of_training=not of_rl and not of_serving, of_serving=of_serving)
        if of_serving:
            from predict.cli import servers

            with checks.one():
                order, asked, coefficients = servers.read_sweep(options)
    if of_serving:
        servers.sweep(options, order, asked, coefficients)
        return
    if of_rl:
        from predict.cli import rl_sweep

        rl_sweep.sweep(options)
        return
    from predict import sweep
    from predict.plan_search.long_table import columns, long_table, write_table
    from predict.reports.sweep import sweep_json, sweep_text
    from predict.reports.text import show
    from sampling.hardware.this_device import code_version

    found = sweep(options.config, options.vary, options.overrides, progress=_progress)
    if options.output is not None or options.json:
        rows = long_table(found, commit=code_version())
    if options.output is not None:
        with writing("--output", options.output):
            write_table(options.output, rows, columns(found))
        log(f"wrote {options.output}")
    if options.json:
        print_json(sweep_json(found, rows))
    else:
        show(sweep_text(found))


def _check(options: argparse.Namespace, *, of_training: bool, of_serving: bool) -> None:
    """UserError with every fault of the options."""
    from predict.plan_search.sweep import parse_vary

    with Checks() as checks:
        with checks.one():
            if not options.vary:
                example = "placement.tp=1,2,4" if of_serving else "batch.micro=1,2,4"
                raise UserError(f"--vary: missing; give a key and its values, for example --vary {example}")
        if not of_serving:
            checks.run(require_no_questions, options, "slo", "price", "objective", "model", "coefficients")
        if of_training:
            checks.run(parse_vary, options.vary)
        checks.run(require_output, "--output", options.output, SUFFIXES)
        if options.output is not None and options.output.suffix.lower() == PARQUET:
            checks.run(require_library, "pyarrow")


def _progress(done: int, of: int) -> None:
    if sys.stderr.isatty() and (done % ROWS_BETWEEN == 0):
        log(f"{done:,} of {of:,}")
