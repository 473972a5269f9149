"""`predict explain`: the predicted ledger beside that of a profile of the same run, and what makes the difference."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from predict.cli.options import (
    add_calibration,
    add_command,
    add_config,
    add_json,
    loaded,
    print_json,
)

EXAMPLES = """\
examples:
  predict measure configs/runs/demo.yml --trace traces
  predict explain configs/runs/demo.yml --trace traces
  predict explain configs/runs/llama3-70b-64xh100.yml --trace rank0.json.gz --json
"""
DESCRIPTION = """\
Hold a prediction against traces of torch's profiler (record_shapes=True), of one rank or, in a folder, of several. Both ledgers are of
the mean traced rank; the measured one adds up to the measured step, with what no operator explains in a row of its own. Waiting is told
from transferring where more than one rank was traced.
"""


def add(subcommands: Any) -> None:
    command = add_command(
        subcommands,
        "explain",
        "hold a prediction against a profile of the run, and say what differs",
        EXAMPLES,
        description=DESCRIPTION,
    )
    add_config(command)
    command.add_argument(
        "--trace",
        type=Path,
        required=True,
        metavar="PATH",
        help="a trace of torch's profiler (.json or .json.gz), or a folder with one a rank",
    )
    add_calibration(command)
    add_json(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    from predict import estimate
    from predict.explain.ledger import explain

    explanation = explain(estimate(loaded(options), require_fit=False), options.trace)
    if options.json:
        print_json(explanation.to_json())
    else:
        from predict.report.console import show
        from predict.report.measured.explanation import explanation_report

        show(explanation_report(explanation))
