"""A small continuous-batching server in plain torch: arrivals in real time, one step after the other."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import torch

from predict.measurement.serving.model import ServedModel
from predict.measurement.serving.scheduler import Request, Scheduler, Turn
from predict.serving.server import EngineSettings
from predict.serving.traffic import Traffic
from sampling.units import SECOND_US

SCHEDULER_TIMES = Path("/proc/thread-self/schedstat")
"""ns that the thread ran, ns that it waited for a core, and slices (Documentation/scheduler/sched-stats.rst)."""
LONGEST_NAP_S = 0.05


class Clock:
    """Seconds since its start; it stands still while other processes keep this thread from running."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._kept = SCHEDULER_TIMES.open("rb", buffering=0) if SCHEDULER_TIMES.exists() else None
        self._waited_before = self._waited_s()

    @property
    def waited_s(self) -> float:
        """Seconds in which the thread was ready and had no core."""
        return self._waited_s() - self._waited_before

    def now_s(self) -> float:
        return time.perf_counter() - self._start - self.waited_s

    def _waited_s(self) -> float:
        if self._kept is None:
            return 0.0
        self._kept.seek(0)
        return int(self._kept.read().split()[1]) / 1e9

    def sleep(self, seconds: float) -> None:
        """Wait, for at most LONGEST_NAP_S."""
        time.sleep(min(LONGEST_NAP_S, max(0.0, seconds)))


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
    """The times of each request in µs from the start of the load, but for its arrival."""

    start_us: list[float]
    first_us: list[float]
    last_us: list[float]
    steps: list[TimedStep] = field(default_factory=list)
    preemptions: int = 0
    waited_s: float = 0.0
    """Seconds in which other processes kept the server from running, which no time here contains, but with two pools."""
    accepted: list[int] = field(default_factory=list)
    """Drafts that each decode with some accepted."""


class Model(Protocol):
    """A model that is served."""

    def next_tokens(self, turns: Sequence[Turn]) -> list[list[int]]:
        """The next token after each turn, and after each of its drafts, chunks before decodes."""

    def keep(self, blocks: Sequence[int], kept: bytes) -> None:
        """Put keys and values of leading tokens, as another server computed them, into blocks of the cache."""


class Source(Protocol):
    """The source of requests, in µs of the clock of the server that serves them."""

    def come(self, now_us: float) -> Iterator[Request]:
        """The requests that have come since."""

    def next_us(self, now_us: float) -> float:
        """The time at which the next one comes, or may come."""

    def end(self, request: Request, now_us: float) -> None:
        """Learn that a request has ended; its blocks keep what they hold until the next step."""


class Arrivals:
    """The requests of a load, at their own times or, in a closed loop, as others end."""

    def __init__(self, traffic: Traffic, prompts: Sequence[Sequence[int]]) -> None:
        self.traffic, self.prompts = traffic, prompts
        self.known, self.arrived = traffic.in_flight or len(traffic), 0
        self.arrival_us = [float(each) if i < self.known else -1.0 for i, each in enumerate(traffic.arrival_us)]

    def come(self, now_us: float) -> Iterator[Request]:
        while self.arrived < self.known and self.arrival_us[self.arrived] <= now_us:
            yield Request(
                index=self.arrived,
                tokens=list(self.prompts[self.arrived]),
                prompt=int(self.traffic.prompt[self.arrived]),
                output=int(self.traffic.output[self.arrived]),
            )
            self.arrived += 1

    def next_us(self, now_us: float) -> float:
        return self.arrival_us[self.arrived]

    def end(self, request: Request, now_us: float) -> None:
        if self.known < len(self.traffic):
            self.arrival_us[self.known] = now_us
            self.known += 1


class RealServer:
    """A model behind a scheduler, whose times `clock` measures."""

    def __init__(self, model: Model, scheduler: Scheduler, clock: Clock) -> None:
        self.model, self.scheduler, self.clock = model, scheduler, clock
        self.accepted: list[int] = []
        """Drafts that each decode with some accepted."""

    def step(self) -> tuple[TimedStep, list[Turn], list[Request]]:
        """Plan and run one step; its record, its turns and the requests that it ended."""
        start_us = self.clock.now_s() * SECOND_US
        planned = self.scheduler.plan()
        turns = sorted(planned, key=lambda turn: turn.decode)  # chunks first, each kind in its order
        chunks = tuple((turn.tokens, turn.context) for turn in turns if not turn.decode)
        decodes = tuple(turn.context for turn in turns if turn.decode)
        for request in (turn.request for turn in turns if turn.request.kept):
            self.model.keep(request.blocks, request.kept)
            request.kept = b""
        following = self.model.next_tokens(turns)
        for turn, tokens in zip(turns, following, strict=True):
            self.accepted += [turn.accepted(tokens)] if turn.drafts else []
        ended = self.scheduler.finish(turns, following)
        end_us = self.clock.now_s() * SECOND_US
        return TimedStep(chunks=chunks, decodes=decodes, start_us=start_us, end_us=end_us), turns, ended

    def serve(self, source: Source, count: int) -> RequestTimes:
        """Serve so many requests as they come, from the start of the clock; without their arrivals, which `source` knows."""
        times = RequestTimes(start_us=[-1.0] * count, first_us=[-1.0] * count, last_us=[-1.0] * count)
        done = 0
        while done < count:
            now_us = self.clock.now_s() * SECOND_US
            for request in source.come(now_us):
                self.scheduler.add(request)
            if not self.scheduler.running and not self.scheduler.waiting:
                self.clock.sleep((source.next_us(now_us) - now_us) / SECOND_US)
                continue
            step, turns, ended = self.step()
            times.steps.append(step)
            for turn in turns:
                index = turn.request.index
                if times.start_us[index] < 0:
                    times.start_us[index] = step.start_us
                if times.first_us[index] < 0 and len(turn.request.tokens) > turn.request.prompt:
                    times.first_us[index] = step.end_us
            for request in ended:
                times.last_us[request.index] = step.end_us
                source.end(request, step.end_us)
                done += 1
        times.preemptions = self.scheduler.preemptions
        times.waited_s = self.clock.waited_s
        times.accepted = self.accepted
        return times


def prompts_of(traffic: Traffic, vocab: int) -> list[list[int]]:
    """Random prompts; those of a group begin with the same tokens."""
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


VISITS = 5
"""Moments at which each batch is timed, since a shared machine drifts."""
DECODE_STEPS = 6
"""Steps of decodes alone at each visit; one with a chunk of each size follows."""
WARMUP_VISITS = 1
CONTEXTS = (0.02, 0.12)
"""Shares of the model's positions between which the prompts of decoding requests lie, evenly, as requests of different age do."""
CHUNKS = (0.0625, 0.25, 0.75)
"""Shares of the step's tokens that a chunk takes."""


def sampled_steps(
    model: ServedModel, settings: EngineSettings, blocks: int, *, visits: int = VISITS
) -> list[TimedStep]:
    """Timed steps of decodes alone and with one chunk, for numbers of decodes up to what the engine takes."""
    return [step for _ in range(visits) for step in _visit(model, settings, blocks)]


def warm_up(model: ServedModel, settings: EngineSettings, blocks: int) -> None:
    """Run steps until torch's lazy set-up is done and the allocator has its memory."""
    for _ in range(WARMUP_VISITS):
        _visit(model, settings, blocks)


def _visit(model: ServedModel, settings: EngineSettings, blocks: int) -> list[TimedStep]:
    counts = [2**power for power in range(settings.max_num_seqs.bit_length()) if 2**power < settings.max_num_seqs]
    return [
        step
        for count in (*counts, settings.max_num_seqs)
        for step in _with_decodes(RealServer(model, Scheduler(settings, blocks), Clock()), count, model.positions)
    ]


def _with_decodes(server: RealServer, count: int, positions: int) -> list[TimedStep]:
    settings = server.scheduler.settings
    low, high = (round(share * positions) for share in CONTEXTS)
    lengths = [low + (high - low) * place // max(1, count - 1) for place in range(count)]
    steps = DECODE_STEPS + len(CHUNKS)
    for place, length in enumerate(lengths):
        # more output than the steps take, so that none ends
        server.scheduler.add(_request(place, length, positions))
    while server.scheduler.waiting or any(one.computed < one.prompt for one in server.scheduler.running):
        server.step()
    timed = [server.step()[0] for _ in range(DECODE_STEPS)]
    if count == settings.max_num_seqs:
        return timed
    for share in CHUNKS:
        tokens = round(share * settings.max_num_batched_tokens)
        server.scheduler.add(_request(steps, tokens, 1))
        timed.append(server.step()[0])
    return timed


def _request(index: int, prompt: int, output: int) -> Request:
    return Request(index=index, tokens=_tokens(index, prompt), prompt=prompt, output=output)


def _tokens(index: int, count: int) -> list[int]:
    return [(7 * index + place) % 251 for place in range(count)]
