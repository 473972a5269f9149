"""Steps fill a span of time and of count, by a clock that the test moves."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from predict.measurement.gpu_steps import Span, Stepper, parse, watched
from sampling.hardware.readings import DeviceReading


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


# Readings of a stubbed nvidia-smi, and of torch's library where there is none.


def unread() -> DeviceReading:
    raise AssertionError("nvidia-smi is there")


def test_lines_are_read_and_gaps_are_reported() -> None:
    printed = "1755, 612.34\n1740, [N/A]\nunsupported\n[Unknown Error], 600\n17"
    assert parse(printed) == [
        DeviceReading(clock_mhz=1755, power_w=612.34),
        DeviceReading(clock_mhz=1740),
        DeviceReading(power_w=600),
    ]


def test_a_span_is_watched_by_a_process_of_its_own(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    stub = f'echo "$1" > {seen}.part; echo "1700, 600.0"; echo "1800, 620.0"; mv {seen}.part {seen}; exec sleep 60'
    with watched("GPU-1", unread, command=("bash", "-c", stub, "stub")) as readings:
        while not seen.exists():
            time.sleep(0.01)
    assert readings.mean() == DeviceReading(clock_mhz=1750, power_w=610)
    assert seen.read_text() == "--id=GPU-1\n"


def test_without_nvidia_smi_torch_is_asked_once() -> None:
    with watched("GPU-1", lambda: DeviceReading(clock_mhz=1300, power_w=500), command=("no-such-smi",)) as readings:
        pass
    assert readings.mean() == DeviceReading(clock_mhz=1300, power_w=500)


def test_what_nothing_reports_is_none() -> None:
    with watched("GPU-1", DeviceReading, command=("true",)) as readings:
        pass
    assert readings.mean() == DeviceReading()
