"""The served model: what is batched, chunked, cached and preempted generates what each request does alone."""

import os
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from predict.huggingface.config_json import load_model
from predict.measurement.serving import job
from predict.measurement.serving.engine import Clock, RealServer, prompts_of
from predict.measurement.serving.job import make_answers, make_prompts
from predict.measurement.serving.model import ServedModel
from predict.measurement.serving.scheduler import Request, Scheduler, Turn
from predict.model.shipped import shipped_model
from tests.predict.serving.servers import engine, requests

BLOCKS = 30


def tiny() -> ServedModel:
    path = shipped_model("tiny-llama")
    assert path is not None
    return ServedModel(load_model(path), blocks=BLOCKS, block=16, positions=256, dtype=torch.float32)


def generated(prompts: list[list[int]], outputs: list[int], blocks: int, **changes: Any) -> tuple[list[list[int]], int]:
    """The tokens of each request, all waiting from the start, and how many were preempted."""
    scheduler = Scheduler(engine(**changes), blocks)
    server = RealServer(tiny(), scheduler, Clock())
    waiting = [
        Request(index=place, tokens=[*prompt], prompt=len(prompt), output=output)
        for place, (prompt, output) in enumerate(zip(prompts, outputs, strict=True))
    ]
    for request in waiting:
        scheduler.add(request)
    with torch.inference_mode():
        while scheduler.running or scheduler.waiting:
            server.step()
    return [request.tokens[request.prompt :] for request in waiting], scheduler.preemptions


@cache
def alone(prompt: tuple[int, ...], output: int) -> list[int]:
    """The tokens of a request by itself."""
    return generated([[*prompt]], [output], BLOCKS)[0][0]


@pytest.mark.parametrize(
    ("blocks", "changes", "preempts"),
    [
        (BLOCKS, {}, False),
        (BLOCKS, {"max_num_batched_tokens": 24}, False),
        (7, {"prefix_caching": False}, True),
        (6, {}, True),
    ],
)
def test_batches_generate_what_each_request_does_alone(blocks: int, changes: dict[str, Any], preempts: bool) -> None:
    prompts = prompts_of(requests((0, 40, 9), (0, 33, 9), (0, 50, 20), (0, 41, 12), shared=33), 8192)
    outputs = [20, 30, 20, 12]
    together, preempted = generated(prompts, outputs, blocks, **changes)
    assert together == [alone(tuple(prompt), output) for prompt, output in zip(prompts, outputs, strict=True)]
    assert (preempted > 0) == preempts
    assert len({*map(tuple, together)}) == len(together)


@pytest.mark.parametrize("pipe_bytes", [job.PIPE_BYTES, 1, -1])
def test_answers_to_prompts_of_another_server_are_those_of_one(
    pipe_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with a pipe of one page, less than a prompt's keys and values, and with one as it is made, where the system refuses a size."""
    monkeypatch.setattr(job, "PIPE_BYTES", pipe_bytes)
    traffic = requests((0, 40, 9), (0, 33, 9), (0, 1, 5), (0, 41, 12))
    prompts = prompts_of(traffic, 8192)
    made: dict[int, list[int]] = {}

    class Kept(Scheduler):
        def finish(self, turns: Sequence[Turn], next_tokens: Sequence[Sequence[int]]) -> list[Request]:
            ended = super().finish(turns, next_tokens)
            made.update({one.index: one.tokens for one in ended})
            return ended

    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    other = threading.Thread(
        target=make_prompts, args=(tiny(), Scheduler(engine(), BLOCKS), traffic, prompts, str(pipe)), daemon=True
    )
    other.start()
    times = make_answers(tiny(), Kept(engine(), BLOCKS), traffic, prompts, str(pipe))
    other.join()
    for index, (prompt, output) in enumerate(zip(prompts, traffic.output.tolist(), strict=True)):
        assert made[index] == [*prompt, *alone(tuple(prompt), output)]
    assert all(
        start < first < last for start, first, last in zip(times.start_us, times.first_us, times.last_us, strict=True)
    )
    # the pool for answers computes the last token of each prompt again, as a decode
    assert sum(tokens for step in times.steps for tokens, _ in step.chunks) == traffic.prompt.sum()
