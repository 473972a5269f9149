"""A small continuous-batching server in plain torch: arrivals in real time, one step after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch

from predict.measurement.serving.clock import Clock
from predict.measurement.serving.requests import Request, Turn
from predict.measurement.serving.scheduler import Scheduler
from predict.serving.scheduler.traffic import Traffic
from sampling.units import SECOND_US


@dataclass(frozen=True, kw_only=True, slots=True)
class TimedStep:
    """One step as it was run: (tokens, context) of its chunks, keys of its decodes before their own, and its times by the clock."""

    chunks: tuple[tuple[int, int], ...]
    decodes: tuple[int, ...]
    start_us: float
    end_us: float

    @property
    def time_us(self) -> float:
        return self.end_us - self.start_us


@dataclass(kw_only=True, slots=True)
class RequestTimes:
    """The times of each request in µs from the start of the load."""

    arrival_us: list[float]
    start_us: list[float]
    first_us: list[float]
    last_us: list[float]
    steps: list[TimedStep] = field(default_factory=list)
    preemptions: int = 0
    waited_s: float = 0.0
    """Seconds in which other processes kept the server from running, which no time here contains."""


class NextTokens(Protocol):
    """A model that is served."""

    def next_tokens(self, turns: Sequence[Turn]) -> list[int]:
        """The next token after each turn, chunks before decodes."""


class RealServer:
    """A model behind a scheduler, whose times `clock` tells."""

    def __init__(self, model: NextTokens, scheduler: Scheduler, clock: Clock) -> None:
        self.model, self.scheduler, self.clock = model, scheduler, clock

    def step(self) -> tuple[TimedStep, list[Turn], list[Request]]:
        """Plan and run one step; its record, its turns and the requests that it ended."""
        start_us = self.clock.now_s() * SECOND_US
        planned = self.scheduler.plan()
        turns = sorted(planned, key=lambda turn: turn.decode)  # chunks first, each kind in its order
        chunks = tuple((turn.tokens, turn.context) for turn in turns if not turn.decode)
        decodes = tuple(turn.context for turn in turns if turn.decode)
        ended = self.scheduler.finish(turns, self.model.next_tokens(turns))
        end_us = self.clock.now_s() * SECOND_US
        return TimedStep(chunks=chunks, decodes=decodes, start_us=start_us, end_us=end_us), turns, ended

    def serve(self, traffic: Traffic, prompts: Sequence[Sequence[int]]) -> RequestTimes:
        """Serve requests as they arrive, or so many at once in a closed loop."""
        count = len(traffic)
        known = traffic.in_flight or count
        arrival = [float(each) if place < known else -1.0 for place, each in enumerate(traffic.arrival_us)]
        times = RequestTimes(
            arrival_us=arrival, start_us=[-1.0] * count, first_us=[-1.0] * count, last_us=[-1.0] * count
        )
        zero_us, waited_s, preempted = self.clock.now_s() * SECOND_US, self.clock.waited_s, self.scheduler.preemptions
        arrived = done = 0
        while done < count:
            now_us = self.clock.now_s() * SECOND_US - zero_us
            while arrived < known and arrival[arrived] <= now_us:
                request = Request(
                    index=arrived,
                    tokens=list(prompts[arrived]),
                    prompt=int(traffic.prompt[arrived]),
                    output=int(traffic.output[arrived]),
                )
                self.scheduler.add(request)
                arrived += 1
            if not self.scheduler.running and not self.scheduler.waiting:
                self.clock.sleep((arrival[arrived] - now_us) / SECOND_US)
                continue
            step, turns, ended = self.step()
            times.steps.append(step)
            start_us = step.start_us - zero_us
            now_us = step.end_us - zero_us
            for turn in turns:
                index = turn.request.index
                if times.start_us[index] < 0:
                    times.start_us[index] = start_us
                if times.first_us[index] < 0 and len(turn.request.tokens) > turn.request.prompt:
                    times.first_us[index] = now_us
            for request in ended:
                times.last_us[request.index] = now_us
                done += 1
                if traffic.in_flight and known < count:
                    arrival[known] = now_us
                    known += 1
        times.preemptions = self.scheduler.preemptions - preempted
        times.waited_s = self.clock.waited_s - waited_s
        return times


def prompts_of(traffic: Traffic, vocab: int) -> list[list[int]]:
    """Random prompts, of which those of a group begin with the same tokens."""
    generator = torch.Generator().manual_seed(0)

    def tokens(count: int) -> list[int]:
        found: list[int] = torch.randint(vocab, (count,), generator=generator).tolist()
        return found

    common: dict[int, list[int]] = {}
    prompts = []
    for prompt, shared, group in zip(traffic.prompt, traffic.shared, traffic.group, strict=True):
        size = int(shared) if group >= 0 else 0
        start = common.setdefault(int(group), [])
        start += tokens(max(0, size - len(start)))
        prompts.append(start[:size] + tokens(int(prompt) - size))
    return prompts
