"""`predict serving-step`: one step of a serving engine, for a batch of prefill chunks and decodes."""

import argparse

from predict.cli.options import add_json, add_settings, add_step_model, print_answer
from predict.reports.serving_step import step_json, step_text
from predict.serving.served_step import serving_step

EXAMPLES = """\
examples:
  predict serving-step configs/serving/llama3-8b-h100.yml --decodes 64x800
  predict serving-step configs/serving/llama3-8b-h100.yml --decodes 63x800 --prefill 512 --model all
  predict serving-step configs/serving/mixtral-2xh100.yml --prefill 512@1536 --json
"""
DESCRIPTION = """\
Predict one step of a serving engine: its time with a 90 % interval, and where it goes.

--decodes 64x800 are 64 requests with 800 tokens in the cache each; --prefill 512@1536 is a chunk of 512 tokens after 1536 that are
in the cache already, and 4x512 four chunks. Both may be repeated.
"""


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("config", metavar="CONFIG", help="serving config (YAML), as in configs/serving")
    command.add_argument(
        "--decodes",
        action="append",
        default=[],
        metavar="COUNTxCONTEXT",
        help="decoding requests and their cached tokens",
    )
    command.add_argument(
        "--prefill", action="append", default=[], metavar="[COUNTx]TOKENS[@CONTEXT]", help="chunks of prompts"
    )
    add_step_model(command, more=", or all side by side")
    add_settings(command, of_servers=True)
    add_json(command)


def run(options: argparse.Namespace) -> None:
    found = serving_step(
        options.config,
        options.overrides,
        decodes=options.decodes,
        prefill=options.prefill,
        model=options.model,
        coefficients=options.coefficients,
    )
    print_answer(options, found, step_json, step_text)
