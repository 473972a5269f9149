"""`predict schema`: the JSON Schema of a run config."""

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
"""


def add(subcommands: Any) -> None:
    command = add_command(subcommands, "schema", "print the JSON Schema of a run config", EXAMPLES)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    from predict.config.json_schema import json_schema

    print_json(json_schema())
