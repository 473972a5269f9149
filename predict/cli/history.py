"""`predict history`: the recorded runs of a cluster, the error over time, and drift."""

import argparse

from predict.cli.options import add_data, add_json, print_json, require_positive
from predict.measured_runs.history import history
from predict.measured_runs.records import past_date
from predict.reports.history import MOST_SHOWN, histories_json, history_text
from predict.reports.text import show
from sampling.command_line import log
from sampling.errors import Checks

EXAMPLES = """\
examples:
  predict history               all clusters with recorded runs
  predict history pod-a --since 2026-03-01
  predict history pod-a --last 50 --json
"""
DESCRIPTION = """\
The runs that `predict record` kept, next to what was predicted of them; whether steps have become slower or faster than predicted since
some day, and which term of a calibration would explain it.
"""


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("cluster", nargs="?", metavar="CLUSTER", help="one cluster (default: all)")
    command.add_argument("--since", metavar="DATE", help="the runs from a day on, such as 2026-03-12 (default: all)")
    command.add_argument("--last", type=int, metavar="N", help="the last N runs (default: all; 20 are shown)")
    add_data(command)
    add_json(command)


def run(options: argparse.Namespace) -> None:
    with Checks() as checks:
        checks.run(require_positive, options, "last")
        checks.run(past_date, "--since", options.since)
    histories = history(options.cluster, since=options.since, last=options.last, report=log)
    if options.json:
        print_json(histories_json(histories))
    else:
        for each in histories:
            show(history_text(each, options.last or MOST_SHOWN))
