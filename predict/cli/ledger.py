"""`predict ledger`: every quantity behind a step, in five books that add up to it."""

import argparse
import sys

from predict import rl_ledger, step_ledger
from predict.cli import options as cli
from predict.kinds import RL, kind_of
from predict.plan_search.long_table import as_csv
from predict.reports.ledger import COLUMNS, ledger_json, ledger_rows, ledger_text
from predict.reports.rl_ledger import rl_ledger_json, rl_ledger_rows, rl_ledger_text

DESCRIPTION = """\
The five books of one training step, which add up to what `predict one-batch` and `predict memory` say, and MFU by convention.

compute        FLOPs that the model requires, by part; every operator with its time, and that over the least that the device allows
memory         the terms of the worst rank's peak
communication  every kind of message: group, bytes, count, time, and how much of it is hidden
schedule       how the batch is divided, and when each pipeline rank waits
calibration    what the times rest on, what is unknown, and the constants that moved the result

Times are those of one GPU on the mean pipeline rank. docs/reference/ledger.md says how each figure is counted.

Of an RL config, the books of its step: each phase is a heading with parts of its own, and trainer and engines have an account each.
"""
EXAMPLES = """\
examples:
  predict ledger configs/runs/demo.yml
  predict ledger configs/runs/llama3-70b-64xh100.yml --json
  predict ledger configs/runs/demo.yml --set plan.recompute=full --csv
  predict ledger configs/rl/qwen3-30b-a3b-grpo.yml
"""


def add_options(command: argparse.ArgumentParser) -> None:
    cli.add_config(command)
    form = command.add_mutually_exclusive_group()
    cli.add_json(form)
    form.add_argument("--csv", action="store_true", help="a long table on stdout: one number per row")
    cli.add_calibration(command)


def run(options: argparse.Namespace) -> None:
    if kind_of(options.config) == RL:
        cli.refuse(
            cli.given(options, "calibration"),
            "does not apply to an RL config; omit it, or name it in cluster.calibration",
        )
        of_rl = rl_ledger(options.config, options.overrides)
        cli.log_not_read(of_rl.step.rl.not_read)
        if options.csv:
            sys.stdout.write(as_csv(rl_ledger_rows(of_rl), COLUMNS))
        else:
            cli.print_answer(options, of_rl, rl_ledger_json, rl_ledger_text)
        return
    found = step_ledger(cli.loaded(options))
    if options.csv:
        sys.stdout.write(as_csv(ledger_rows(found), COLUMNS))
    else:
        cli.print_answer(options, found, ledger_json, ledger_text)
