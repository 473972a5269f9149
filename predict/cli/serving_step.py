"""`predict serving-step`: one step of a serving engine, for a batch of prefill chunks and decodes."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from predict.cli.options import add_data, add_json, add_overrides, add_step_model, print_json
from predict.cli.serving_questions import read_step_model
from sampling.errors import Checks, UserError

if TYPE_CHECKING:
    from predict.serving.batch import StepBatch
    from predict.serving.coefficients import Coefficients
    from predict.serving.server import EngineSettings

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
GROUP = re.compile(r"(?:(?P<count>\d+)x)?(?P<tokens>\d+)(?:@(?P<context>\d+))?")
MOST = 10**7
ALL = "all"


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
    add_overrides(command)
    add_data(command)
    add_json(command)


def run(options: argparse.Namespace) -> None:
    from predict.reports.serving.step import step_json, step_text
    from predict.reports.text import show
    from predict.serving.config import load_serving
    from predict.serving.stepper import Stepper

    with Checks() as checks:
        with checks.one():
            coefficients = _coefficients(options)
        with checks.one():
            run = load_serving(options.config, options.overrides)
    batch = batch_of(options.decodes, options.prefill, run.server.engine)
    steppers = [Stepper(run.server, each) for each in coefficients]
    if options.json:
        print_json(step_json(run, batch, steppers))
    else:
        show(step_text(run, batch, steppers))


def _coefficients(options: argparse.Namespace) -> list[Coefficients]:
    """Those of the model, or of all: then a file's take the place of its model's."""
    if options.model != ALL:
        return [read_step_model(options)]
    from predict.serving.coefficients import read_coefficients, shipped_coefficients
    from predict.serving.step_model import MODELS

    own = read_coefficients(options.coefficients) if options.coefficients else None
    return [own if own and own.model == name else shipped_coefficients(name) for name in MODELS]


def batch_of(decodes: list[str], prefill: list[str], engine: EngineSettings) -> StepBatch:
    """The batch that the options describe; UserError for one that they do not, for an empty one, and for more requests than the engine
    takes."""
    from predict.serving.batch import Chunk, StepBatch

    if not decodes and not prefill:
        raise UserError("--decodes: missing, and --prefill too; give one of them, for example --decodes 64x800")
    running = [_group("--decodes", text) for text in decodes]
    starting = [_group("--prefill", text) for text in prefill]
    for option, groups in (("--decodes", running), ("--prefill", starting)):
        asked = sum(count for count, *_ in groups)
        if asked > engine.max_num_seqs:
            raise UserError(
                f"{option}: {asked:,} requests, where the engine runs {engine.max_num_seqs:,} at once (engine.max_num_seqs); give fewer, or raise it"
            )
    chunks = (Chunk(tokens=tokens, context=context) for count, tokens, context in starting for _ in range(count))
    contexts = (tokens for count, tokens, _ in running for _ in range(count))
    return StepBatch(chunks=tuple(chunks), decodes=tuple(contexts))


def _group(option: str, text: str) -> tuple[int, int, int]:
    """Count, tokens and context."""
    found = GROUP.fullmatch(text)
    allowed = "COUNTxCONTEXT, as 64x800" if option == "--decodes" else "COUNTxTOKENS@CONTEXT, as 512, 4x512 or 512@1536"
    if found is None or (option == "--decodes" and (found["context"] or not found["count"])):
        raise UserError(f"{option}: {text!r} is not {allowed}")
    count, tokens, context = (
        int(found[name] or default) for name, default in (("count", 1), ("tokens", 0), ("context", 0))
    )
    if max(count, tokens, context) > MOST or count < 1:
        raise UserError(f"{option}: {text!r}: numbers from 1 to {MOST:,} are read; give {allowed}")
    return count, tokens, context
