"""One step of a server: a batch of prefill chunks and decodes, and its time by a model of the step, or by all."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from predict.config.document import Config
from predict.serving.batch import Chunk, StepBatch
from predict.serving.coefficients import Coefficients, chosen_coefficients, read_coefficients, shipped_coefficients
from predict.serving.config import ServingRun, load_serving
from predict.serving.server import EngineSettings
from predict.serving.step_model import MODELS
from predict.serving.stepper import Stepper
from sampling.errors import Checks, UserError

GROUP = re.compile(r"(?:(?P<count>\d+)x)?(?P<tokens>\d+)(?:@(?P<context>\d+))?")
MOST = 10**7
ALL = "all"


@dataclass(frozen=True, kw_only=True, slots=True)
class ServedStep:
    """A step of a server and the models that time it: `steppers[0].step_times([batch])` has its time by the first."""

    run: ServingRun
    batch: StepBatch
    steppers: Sequence[Stepper]


def serving_step(
    config: Config,
    overrides: Sequence[str] = (),
    *,
    decodes: Sequence[str] = (),
    prefill: Sequence[str] = (),
    model: str = "",
    coefficients: Path | str | None = None,
) -> ServedStep:
    """One step of the engine of a serving config, for a batch of prefill chunks and decodes.

    `decodes` such as `64x800` are 64 requests with 800 tokens in the cache each; `prefill` such as `512@1536` is a
    chunk of 512 tokens after 1536 that are in the cache already, and `4x512` four chunks. `model` is that of the step,
    or `all`; `coefficients` a file that `predict serving-fit` wrote. ConfigError and UserError list every fault.
    """
    with Checks() as checks:
        with checks.one():
            weights = _coefficients(model, None if coefficients is None else Path(coefficients))
        with checks.one():
            run = load_serving(config, overrides)
    batch = batch_of(decodes, prefill, run.server.engine)
    return ServedStep(run=run, batch=batch, steppers=[Stepper(run.server, each) for each in weights])


def _coefficients(model: str, file: Path | None) -> list[Coefficients]:
    """Those of the model, or of all: then a file's take the place of its model's."""
    if model != ALL:
        return [chosen_coefficients(model, file)]
    own = read_coefficients(file) if file else None
    return [own if own and own.model == name else shipped_coefficients(name) for name in MODELS]


def batch_of(decodes: Sequence[str], prefill: Sequence[str], engine: EngineSettings) -> StepBatch:
    """The batch that the options describe; UserError for one that they do not, for an empty one, and for more requests than the engine
    takes."""
    if not decodes and not prefill:
        raise UserError("--decodes: missing, and --prefill too; give one of them, for example --decodes 64x800")
    running = [_group("--decodes", text) for text in decodes]
    starting = [_group("--prefill", text) for text in prefill]
    for option, groups in (("--decodes", running), ("--prefill", starting)):
        requests = sum(count for count, *_ in groups)
        if requests > engine.max_num_seqs:
            raise UserError(
                f"{option}: {requests:,} requests, where the engine runs {engine.max_num_seqs:,} at once (engine.max_num_seqs); give fewer, or raise it"
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
    fewest = 0 if option == "--decodes" else 1
    if max(count, tokens, context) > MOST or count < 1 or tokens < fewest:
        raise UserError(f"{option}: {text!r}: numbers from 1 to {MOST:,} are read; give {allowed}")
    return count, tokens, context
