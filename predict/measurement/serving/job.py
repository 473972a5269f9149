"""The processes of a real server: one that times its steps or serves a load, or two with a pool each."""

import fcntl
import json
import os
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch

from predict.measurement.reference_calls import ReferenceTimes
from predict.measurement.serving.engine import (
    Arrivals,
    Clock,
    RealServer,
    RequestTimes,
    TimedStep,
    prompts_of,
    sampled_steps,
    warm_up,
)
from predict.measurement.serving.model import ServedModel
from predict.measurement.serving.scheduler import Request, Scheduler
from predict.serving.config import load_serving
from predict.serving.kv_cache import cache_room
from predict.serving.traffic import Traffic, traffic_of
from sampling.hardware.cores import release_other_threads
from sampling.torch_work.build import torch_dtype

READING_S = 1.0
"""Seconds for which the pace is read before a load and after it."""


def body(config: str, overrides: Sequence[str], job: str, pipe: str) -> dict[str, Any] | None:
    """The times of a config's server, as plain data.

    The job `steps` times batches of its own choice; `load` serves the requests of the config after one round of such steps, which show
    the machine's pace at the time. Of two pools rank 1 computes prompts and sends their keys and values through the named `pipe` to rank 0,
    which reports.
    """
    serving = load_serving(config, overrides)
    server = serving.server
    blocks = cache_room(server).blocks
    model = ServedModel(
        server.model,
        blocks=blocks,
        block=server.engine.block_size,
        positions=server.model.max_positions + server.speculation.drafts,
        dtype=torch_dtype(server.placement.precision),
    )
    with torch.inference_mode():
        warm_up(model, server.engine, blocks)
        if job == "steps":
            return {"steps": [asdict(step) for step in sampled_steps(model, server.engine, blocks)]}
        before = sampled_steps(model, server.engine, blocks, visits=1)
        traffic = serving.traffic or traffic_of(serving.load)
        prompts = prompts_of(traffic, server.model.vocab)
        scheduler = Scheduler(server.engine, blocks, server.speculation.drafts)
        if os.environ["RANK"] == "1":
            make_prompts(model, scheduler, traffic, prompts, pipe)
            return None
        reference = ReferenceTimes(server.cluster)
        reference.read_for(READING_S)
        if pipe:
            arrival_us, served = traffic.arrival_us.tolist(), make_answers(model, scheduler, traffic, prompts, pipe)
        else:
            arrivals = Arrivals(traffic, prompts)
            arrival_us, served = (
                arrivals.arrival_us,
                RealServer(model, scheduler, Clock()).serve(arrivals, len(traffic)),
            )
        reference.read_for(READING_S)
    return {
        **asdict(served),
        "arrival_us": arrival_us,
        "before": [asdict(step) for step in before],
        "references": asdict(reference.summary()),
    }


# Two pools of one server each: a process computes prompts, and sends their keys and values over a pipe to one that makes the answers.
#
# A message is a line of JSON and as many bytes as it says: first the start of the load by the clock of both, then each prompt as it is
# computed, and the times of the pool for prompts at the end. As with vLLM's connectors the pool for answers computes a prompt's last token
# again, which gives it the first one of the answer.

LEAD_S = 0.1
"""Time from the first message to the start of the load."""
PIPE_BYTES = 2**20
"""What the pipe holds where the system lets it, which Linux does unless the pipes of one user hold much already: 170 tokens of demo-llama
in fp32. What is larger is sent as the other process, which reads it beside its steps, takes it: the next step of prompts waits for that."""
NAP_US = 200.0
"""Time between two looks of an idle pool at what has come."""


class SharedClock(Clock):
    """Seconds since a moment that processes of one host agree on (CLOCK_MONOTONIC); it goes on while a thread waits for a core."""

    def __init__(self, start_s: float) -> None:
        super().__init__()
        self.start_s = start_s

    def now_s(self) -> float:
        return time.monotonic() - self.start_s


class SentPrompts(Arrivals):
    """A load whose prompts are computed here, each with one token, and sent on as they end."""

    def __init__(self, traffic: Traffic, prompts: Sequence[Sequence[int]], model: ServedModel, pipe: BinaryIO) -> None:
        super().__init__(replace(traffic, output=np.ones_like(traffic.output)), prompts)
        self.model, self.pipe = model, pipe

    def end(self, request: Request, now_us: float) -> None:
        kept = self.model.kept(request.blocks, request.prompt - 1)
        _send(self.pipe, {"index": request.index, "bytes": len(kept)}, kept)


class ReceivedPrompts:
    """The same load where its answers are made: each request as its keys and values have come, which a thread reads beside the steps."""

    def __init__(self, traffic: Traffic, prompts: Sequence[Sequence[int]], pipe: BinaryIO) -> None:
        self.traffic, self.prompts, self.pipe = traffic, prompts, pipe
        self.start_s = json.loads(pipe.readline())["start_s"]
        self.computed: dict[str, Any] = {}
        """The times of the pool that computed the prompts, once the thread has ended."""
        self.received: deque[tuple[int, bytes]] = deque()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        release_other_threads()

    def _read(self) -> None:
        for _ in range(len(self.traffic)):
            message = json.loads(self.pipe.readline())
            self.received.append((message["index"], self.pipe.read(message["bytes"])))
        self.computed = json.loads(self.pipe.readline())

    def come(self, now_us: float) -> Iterator[Request]:
        while self.received:
            index, kept = self.received.popleft()
            # the last token of the prompt is computed as a decode's is
            own = int(self.traffic.prompt[index]) - 1
            yield Request(
                index=index,
                tokens=list(self.prompts[index]),
                prompt=own,
                output=int(self.traffic.output[index]) + 1,
                kept=kept,
            )

    def next_us(self, now_us: float) -> float:
        return now_us + NAP_US

    def end(self, request: Request, now_us: float) -> None:
        pass


def make_prompts(
    model: ServedModel, scheduler: Scheduler, traffic: Traffic, prompts: Sequence[Sequence[int]], path: str
) -> None:
    """Compute the prompts of a load as they arrive, and send them over the pipe."""
    with Path(path).open("wb") as pipe:  # waits for the other process
        clock = SharedClock(time.monotonic() + LEAD_S)
        _send(pipe, {"start_s": clock.start_s})
        served = RealServer(model, scheduler, clock).serve(SentPrompts(traffic, prompts, model, pipe), len(traffic))
        _send(pipe, asdict(served))


def make_answers(
    model: ServedModel, scheduler: Scheduler, traffic: Traffic, prompts: Sequence[Sequence[int]], path: str
) -> RequestTimes:
    """Make the answers to prompts that come over the pipe; the times of both pools."""
    with Path(path).open("rb") as pipe:
        with suppress(OSError):  # the pipe stays as it is
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        received = ReceivedPrompts(traffic, prompts, pipe)
        served = RealServer(model, scheduler, SharedClock(received.start_s)).serve(received, len(traffic))
        received.reader.join()
    computed = received.computed
    return replace(
        served,
        start_us=computed["start_us"],
        steps=[TimedStep(**step) for step in computed["steps"]] + served.steps,
        preemptions=computed["preemptions"] + served.preemptions,
        waited_s=computed["waited_s"] + served.waited_s,
    )


def _send(pipe: BinaryIO, message: Mapping[str, Any], content: bytes = b"") -> None:
    pipe.write(json.dumps(message).encode() + b"\n" + content)
    pipe.flush()
