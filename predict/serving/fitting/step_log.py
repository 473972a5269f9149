"""Coefficients fitted to the steps of one engine, as its log tells them: CSV tables with a row for each step.

    step_ms,decodes,decode_context[,prefills,prefill_tokens,prefill_context]

`decode_context` and `prefill_context` are tokens in the cache, of all decodes and of all chunks together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from predict.serving.batch import Chunk, StepBatch
from predict.serving.coefficients import Coefficients
from predict.serving.config import ServingRun
from predict.serving.fitting.own_steps import TimedBatch, fitted_to_steps
from predict.serving.scheduler.request_file import read_rows
from predict.serving.step_model import KERNELS, StepModel
from sampling.errors import UserError
from sampling.files.faults import Fault
from sampling.files.keys import Key
from sampling.files.regular import NotReadError, read_text

TIME = "step_ms"
"""The column by which a table of steps is told from one of requests."""
Count = Annotated[int, Key(minimum=0)]


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineStep:
    """One row."""

    step_ms: Annotated[float, Key(maximum=1e7)]
    """From the start of the step to that of the next, or to its end where the engine does nothing in between."""
    decodes: Count = 0
    decode_context: Count = 0
    """Cached tokens of all decodes together."""
    prefills: Count = 0
    prefill_tokens: Count = 0
    """Prompt tokens that the step computes."""
    prefill_context: Count = 0
    """Cached tokens of all chunks together."""

    def contradictions(self) -> Iterator[Fault]:
        if self.prefill_tokens < self.prefills or (self.prefill_tokens and not self.prefills):
            problem = f"{self.prefill_tokens} tokens of {self.prefills} chunks; each chunk has 1 or more"
            yield Fault(path="prefill_tokens", problem=problem)
        elif not self.decodes and not self.prefills:
            yield Fault(path="decodes", problem="0 with no prefills; leave out steps that do nothing")
        for context, requests in (("decode_context", "decodes"), ("prefill_context", "prefills")):
            if getattr(self, context) and not getattr(self, requests):
                problem = f"{getattr(self, context)} tokens in the cache of 0 {requests}; give their number"
                yield Fault(path=context, problem=problem)

    @property
    def timed(self) -> TimedBatch:
        """The step with its sums divided evenly among its requests."""
        decodes = tuple(_shares(self.decode_context, self.decodes))
        chunks = zip(
            _shares(self.prefill_tokens, self.prefills), _shares(self.prefill_context, self.prefills), strict=True
        )
        batch = StepBatch(
            chunks=tuple(Chunk(tokens=tokens, context=context) for tokens, context in chunks), decodes=decodes
        )
        return TimedBatch(batch=batch, time_us=1e3 * self.step_ms)


def is_step_log(path: Path) -> bool:
    """Whether a file is a table of steps."""
    try:
        first = read_text(path).removeprefix("\ufeff").partition("\n")[0]
    except NotReadError:
        return False
    return TIME in [name.strip() for name in first.split(",")]


def fitted_to_log(run: ServingRun, paths: Sequence[Path], model: StepModel, source: str) -> Coefficients:
    """The kernel model's weights by the steps of a config's server. The client's time, which no step tells, is 0.

    ConfigError for a faulty file; UserError for another model, for a step that the engine does not take, and for too few kinds of steps.
    """
    if model is not KERNELS:
        raise UserError(f"--model: {model.name} is fitted to requests; steps fit {KERNELS.name}")
    steps = [row.timed for path in paths for row in read_rows(path, EngineStep, each="step").values()]
    server = run.server
    most = max(max(len(one.batch.decodes), sum(one.kind)) for one in steps)
    limit = server.engine.max_num_batched_tokens
    if most > limit:
        raise UserError(
            f"{source}: a step has {most:,} tokens, where {run.name}'s engine takes {limit:,}; set engine.max_num_batched_tokens as it was"
        )
    return fitted_to_steps(steps, server, source)


def _shares(total: int, count: int) -> list[int]:
    """A total in whole parts that differ by 1 at most."""
    return [(total * (place + 1)) // count - (total * place) // count for place in range(count)]
