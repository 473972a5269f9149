"""A small continuous-batching server in plain torch: arrivals in real time, one step after the other."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch

from predict.measurement.reference_calls import ReferenceTimes
from predict.measurement.serving.model import ServedModel
from predict.measurement.serving.scheduler import Request, Scheduler, Turn
from predict.serving.config import load_serving
from predict.serving.kv_cache import cache_room
from predict.serving.server import EngineSettings
from predict.serving.traffic import Traffic, traffic_of
from sampling.torch_work.build import torch_dtype
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
    """The times of each request in µs from the start of the load."""

    arrival_us: list[float]
    start_us: list[float]
    first_us: list[float]
    last_us: list[float]
    steps: list[TimedStep] = field(default_factory=list)
    preemptions: int = 0
    waited_s: float = 0.0
    """Seconds in which other processes kept the server from running, which no time here contains."""
    accepted: list[int] = field(default_factory=list)
    """Drafts that each decode with some accepted."""


class NextTokens(Protocol):
    """A model that is served."""

    def next_tokens(self, turns: Sequence[Turn]) -> list[list[int]]:
        """The next token after each turn, and after each of its drafts, chunks before decodes."""


class RealServer:
    """A model behind a scheduler, whose times `clock` measures."""

    def __init__(self, model: NextTokens, scheduler: Scheduler, clock: Clock) -> None:
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
        following = self.model.next_tokens(turns)
        for turn, tokens in zip(turns, following, strict=True):
            self.accepted += [turn.accepted(tokens)] if turn.drafts else []
        ended = self.scheduler.finish(turns, following)
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


def body(config: str, overrides: Sequence[str], job: str) -> dict[str, Any]:
    """The times of a config's server, as plain data.

    The job `steps` times batches of its own choice; `load` serves the requests of the config after one round of such steps, which show
    the machine's pace at the time.
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
        reference = ReferenceTimes(server.cluster)
        reference.read()
        traffic = serving.traffic or traffic_of(serving.load)
        scheduler = Scheduler(server.engine, blocks, server.speculation.drafts)
        served = RealServer(model, scheduler, Clock()).serve(traffic, prompts_of(traffic, server.model.vocab))
        reference.read()
    return {
        **asdict(served),
        "before": [asdict(step) for step in before],
        "references": asdict(reference.summary()),
    }
