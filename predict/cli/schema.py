"""`predict schema`: the JSON Schema of a config, or of a table of measured runs."""

from __future__ import annotations

import argparse

from predict.cli.options import (
    print_json,
)

EXAMPLES = """\
examples:
  predict schema
  predict schema --rl         of an RL config, as in configs/rl
  predict schema --serving    of a serving config, as in configs/serving
  predict schema --truth      the columns of a table of measured runs
"""


def add_options(command: argparse.ArgumentParser) -> None:
    which = command.add_mutually_exclusive_group()
    which.add_argument("--rl", action="store_true", help="that of an RL config, which `predict rl-step` reads")
    which.add_argument("--serving", action="store_true", help="that of a serving config, which `predict serving` reads")
    which.add_argument(
        "--truth",
        action="store_true",
        help="that of a row of the CSV file that `predict validate published --truth` reads",
    )


def run(options: argparse.Namespace) -> None:
    if options.truth:
        from predict.validation.truth_columns import truth_schema

        print_json(truth_schema())
        return
    if options.rl:
        from predict.rl.config import rl_schema

        print_json(rl_schema())
        return
    if options.serving:
        from predict.serving.config import serving_schema

        print_json(serving_schema())
        return
    from predict.config.json_schema import json_schema

    print_json(json_schema())
