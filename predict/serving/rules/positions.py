"""Lengths of requests held against the positions of a server's model."""

from __future__ import annotations

from collections.abc import Sequence

from predict.model.spec import ModelSpec
from predict.serving.batch import StepBatch
from predict.serving.scheduler.traffic import Load, Traffic, longest_of
from predict.serving.server import EngineSettings, Server
from sampling.errors import ConfigError
from sampling.files.faults import Fault

SHORTER = "give shorter ones"


def limit_faults(model: ModelSpec, engine: EngineSettings) -> list[Fault]:
    """An engine's own limit beyond the model's positions."""
    if not 0 < model.max_positions < engine.max_model_len:
        return []
    problem = f"{engine.max_model_len:,} is more than the {model.max_positions:,} positions of {model.name}; give fewer"
    return [Fault(path="engine.max_model_len", problem=problem)]


def load_faults(server: Server, load: Load, traffic: Traffic | None) -> list[Fault]:
    """The longest request of a file, or that a load may draw at any rate, that is longer than the server takes."""
    if not server.max_model_len:
        return []
    if traffic is None:
        prompt, output = (longest_of(load, of) for of in ("prompt", "output"))
        path, which, fix = "load.prompt", "a request may have" if load.spread else "a request has", SHORTER
        if load.prompt_lengths or load.output_lengths:
            path, which, fix = "load", "a request may have", "cut them with load.prompt_max or load.output_max"
    else:
        longest = int((traffic.prompt + traffic.output).argmax())
        assert traffic.place is not None
        prompt, output = int(traffic.prompt[longest]), int(traffic.output[longest])
        path, which, fix = "load.file", f"request {traffic.place[longest]} has", SHORTER
    if prompt + output <= server.max_model_len:
        return []
    problem = f"{which} {prompt:,} tokens of prompt and {output:,} of answer, {_beyond(server)}; {fix}"
    return [Fault(path=path, problem=problem)]


def require_positions(server: Server, batches: Sequence[StepBatch]) -> None:
    """ConfigError for a batch with a request that is longer than the server takes."""
    limit = server.max_model_len
    if not limit:
        return
    for batch in batches:
        longest = batch.longest_tokens
        if longest > limit:
            raise ConfigError(f"step batch: a request has {longest:,} tokens, {_beyond(server)}; {SHORTER}")


def _beyond(server: Server) -> str:
    if server.engine.max_model_len:
        return f"more than engine.max_model_len, {server.max_model_len:,}"
    return f"more than the {server.max_model_len:,} positions of {server.model.name}"
