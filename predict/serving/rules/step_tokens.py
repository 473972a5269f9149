"""Tokens of a step held against the requests that it serves."""

from __future__ import annotations

from predict.model.spec import ModelSpec
from predict.serving.server import EngineSettings, longest_request
from sampling.files.faults import Fault

PATH = "engine.max_num_batched_tokens"


def step_token_faults(model: ModelSpec, engine: EngineSettings) -> list[Fault]:
    """A step with fewer tokens than requests, or, where prompts are not divided, than the longest request has: vLLM starts with neither
    (`SchedulerConfig` in vllm/config/scheduler.py).

    An engine that never preempts computes no answer anew, so that each request's prompt alone has to fit; simulating holds it against that.
    """
    tokens, faults = engine.max_num_batched_tokens, []
    if tokens < engine.max_num_seqs:
        problem = (
            f"{tokens:,} is less than engine.max_num_seqs, {engine.max_num_seqs:,}, of which each takes a token of every step; raise it, or "
            f"lower engine.max_num_seqs to {tokens:,}"
        )
        faults.append(Fault(path=PATH, problem=problem))
    longest = longest_request(model, engine)
    if not engine.chunked_prefill and not engine.never_preempts and tokens < longest:
        limit = "engine.max_model_len" if engine.max_model_len else f"the positions of {model.name}"
        problem = (
            f"{tokens:,} is less than {limit}, {longest:,}, and without engine.chunked_prefill a prompt is computed in one step; raise it, "
            f"set engine.max_model_len to {tokens:,} or less, or set engine.chunked_prefill: true"
        )
        faults.append(Fault(path=PATH, problem=problem))
    return faults
