"""`predict schema`: the JSON Schema of a config, or of a table of measured runs."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any, Literal

from predict.cli.options import print_json
from predict.config.json_schema import json_schema
from predict.rl.config import rl_schema
from predict.serving.config import serving_schema
from predict.validation.truth_columns import truth_schema
from sampling.errors import UserError
from sampling.files.faults import shown

Of = Literal["training", "rl", "serving", "truth"]
EXAMPLES = """\
examples:
  predict schema
  predict schema --rl         of an RL config, as in configs/rl
  predict schema --serving    of a serving config, as in configs/serving
  predict schema --truth      the columns of a table of measured runs
"""
SCHEMAS: Mapping[Of, Callable[[], dict[str, Any]]] = {
    "training": json_schema,
    "rl": rl_schema,
    "serving": serving_schema,
    "truth": truth_schema,
}


def schema(of: Of = "training") -> dict[str, Any]:
    """The JSON Schema of a config: `training`, `rl` or `serving`; or `truth`, of a row of a table of measured runs."""
    if of not in (*SCHEMAS,):
        raise UserError(f"schema: {shown(of)} has none; give one of {', '.join(SCHEMAS)}")
    return SCHEMAS[of]()


def add_options(command: argparse.ArgumentParser) -> None:
    which = command.add_mutually_exclusive_group()
    for name, text in (
        ("rl", "the schema of an RL config, which `predict rl-step` reads"),
        ("serving", "the schema of a serving config, which `predict serving` reads"),
        ("truth", "the schema of a row of the CSV file that `predict validate published --truth` reads"),
    ):
        which.add_argument(f"--{name}", dest="of", action="store_const", const=name, default="training", help=text)


def run(options: argparse.Namespace) -> None:
    print_json(schema(options.of))
