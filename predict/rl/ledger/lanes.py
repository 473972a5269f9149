"""The phases of an RL step on the GPUs that run them, one after the other; on every lane they add up to the step, waiting included."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from predict.rl.phase import TRAINING
from predict.rl.run.section import COLOCATED
from predict.rl.step import RlStep

ALL, TRAINER, ENGINES = "all GPUs", "trainer", "engines"
WAITING = "waiting"


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """A phase, or waiting, on a lane. Times are µs from the end of the last sync of the weights."""

    lane: str
    name: str
    start_us: float
    time_us: float

    @property
    def end_us(self) -> float:
        return self.start_us + self.time_us


def spans(step: RlStep) -> tuple[Span, ...]:
    """The spans of one step. Waiting for the other side stands in one piece: before training, and after generation."""
    if step.rl.section.placement == COLOCATED:
        return tuple(_in_turn(ALL, {phase.name: phase.time.median_us for phase in step.phases}))
    sync = {"update_weights": step.sync.median_us}
    training = {phase.name: phase.time.median_us for phase in step.phases if phase.name in TRAINING}
    generating = {phase.name: phase.time.median_us for phase in step.phases if phase.name not in (*TRAINING, *sync)}
    return (
        *_in_turn(TRAINER, {WAITING: step.wait_gen_us, **training, **sync}),
        *_in_turn(ENGINES, {**generating, WAITING: step.idle_gen_us, **sync}),
    )


def _in_turn(lane: str, times_us: Mapping[str, float]) -> Iterator[Span]:
    start_us = 0.0
    for name, time_us in times_us.items():
        if time_us:
            yield Span(lane=lane, name=name, start_us=start_us, time_us=time_us)
        start_us += time_us


def accounts_us(step: RlStep) -> dict[str, dict[str, float]]:
    """Lane → phase, or waiting → µs; each lane adds up to the step."""
    found: dict[str, dict[str, float]] = {}
    for span in spans(step):
        found.setdefault(span.lane, {})[span.name] = span.time_us
    return found
