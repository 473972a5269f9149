"""Steps fill a span of time and of count, by a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from predict.measurement.gpu.timed_steps import Span, Stepper


class Device:
    """A device whose steps take `step_s`, after which reading the loss takes `read_s`."""

    def __init__(self, step_s: float, read_s: float = 0.0) -> None:
        self.step_s, self.read_s = step_s, read_s
        self.now_s, self.queued_s, self.steps = 0.0, 0.0, 0

    def step(self) -> Callable[[], float]:
        self.queued_s += self.step_s
        self.steps += 1
        return self.loss

    def loss(self) -> float:
        self.now_s += self.read_s
        return 10.0 - self.steps

    def wait(self) -> None:
        self.now_s, self.queued_s = self.now_s + self.queued_s, 0.0

    def stepper(self) -> Stepper:
        return Stepper(step=self.step, wait=self.wait, now_s=lambda: self.now_s)


@pytest.mark.parametrize(
    ("step_s", "span", "steps"),
    [
        (0.5, Span(seconds=10, steps=5), 20),
        (0.3, Span(seconds=1, steps=1), 4),
        (4.0, Span(seconds=10, steps=5), 5),
        (0.001, Span(seconds=0, steps=7), 7),
    ],
)
def test_a_span_is_filled(step_s: float, span: Span, steps: int) -> None:
    done = Device(step_s).stepper().run(span)
    assert len(done) == steps
    assert [step.wall_s for step in done] == pytest.approx([step_s] * steps)
    assert [step.loss for step in done] == [9.0 - index for index in range(steps)]


def test_work_queued_before_and_losses_read_after_are_no_step_s_time() -> None:
    device = Device(1.0, read_s=0.25)
    device.queued_s = 3.0
    done = device.stepper().run(Span(seconds=5, steps=1))
    assert [step.wall_s for step in done] == pytest.approx([1.0] * len(done))
    assert len(done) == 2  # 3 s of earlier work, then 1.25 s each
