"""`predict schema`: the JSON Schema of a run config, or of a table of measured runs."""

from __future__ import annotations

import argparse
from typing import Any

from predict.cli.options import (
    add_command,
    print_json,
)

EXAMPLES = """\
examples:
  predict schema
  predict schema --truth      the columns of a table of measured runs
"""


def add(subcommands: Any) -> None:
    command = add_command(subcommands, "schema", "print the JSON Schema of a run config, or of a truth table", EXAMPLES)
    command.add_argument(
        "--truth",
        action="store_true",
        help="that of a row of the CSV file that `predict validate published --truth` reads",
    )
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    if options.truth:
        from predict.validate.truth.schema import truth_schema

        print_json(truth_schema())
        return
    from predict.config.json_schema import json_schema

    print_json(json_schema())
