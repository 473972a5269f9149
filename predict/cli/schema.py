"""`predict schema`: the JSON Schema of a run config."""

from __future__ import annotations

import argparse
from typing import Any

from predict.cli.options import print_json


def add(subcommands: Any) -> None:
    command = subcommands.add_parser("schema", help="print the JSON Schema of a run config")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    from predict.config.json_schema import json_schema

    print_json(json_schema())
