"""Steps of a real server with chosen batches: what its coefficients are fitted to before it serves any load."""

from __future__ import annotations

from predict.measurement.serving.clock import Clock
from predict.measurement.serving.engine import RealServer, TimedStep
from predict.measurement.serving.model import ServedModel
from predict.measurement.serving.requests import Request
from predict.measurement.serving.scheduler import Scheduler
from predict.serving.server import EngineSettings

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
