"""Steps timed one by one on a device that is idle before and after each, until a span of time has passed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """The least seconds and the least steps to time; both have to be reached."""

    seconds: float
    steps: int


WARM_UP = Span(seconds=3.0, steps=3)
"""Compiling, autotuning and the allocator are done after a step or two; clock and power settle within seconds of full load."""
TIMED = Span(seconds=10.0, steps=5)


@dataclass(frozen=True, kw_only=True, slots=True)
class TimedStep:
    """One step: seconds from an idle device to an idle device, and the loss before the update."""

    wall_s: float
    loss: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Stepper:
    """Runs and times steps. `step` starts one and returns how to read its loss, `wait` returns when the device is idle, `now_s`
    is a clock."""

    step: Callable[[], Callable[[], float]]
    wait: Callable[[], None]
    now_s: Callable[[], float]

    def run(self, span: Span) -> list[TimedStep]:
        """Steps that fill the span. The time of reading losses is no step's, and counts towards the span."""
        begin_s = self.now_s()
        done: list[TimedStep] = []
        while len(done) < span.steps or self.now_s() - begin_s < span.seconds:
            done.append(self._timed())
        return done

    def _timed(self) -> TimedStep:
        self.wait()
        start_s = self.now_s()
        loss = self.step()
        self.wait()
        return TimedStep(wall_s=self.now_s() - start_s, loss=loss())
