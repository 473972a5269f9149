"""Steps of a GPU timed one by one until a span of time has passed, the GPU idle before and after each; its clock and power meanwhile."""

import statistics
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from sampling.hardware.readings import DeviceReading


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
        """Steps that fill the span. The time of reading losses belongs to no step, and counts towards the span."""
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


PERIOD_MS = 500
"""A power reading is itself a mean over up to a second (NVML, nvmlDeviceGetPowerUsage)."""
COMMAND = (
    "nvidia-smi",
    "--query-gpu=clocks.sm,power.draw",
    "--format=csv,noheader,nounits",
    f"--loop-ms={PERIOD_MS}",
)
STOP_S = 5.0


@dataclass(slots=True)
class Readings:
    """Readings of one span, and their mean; None for what nothing reported."""

    taken: list[DeviceReading] = field(default_factory=list)

    def mean(self) -> DeviceReading:
        return DeviceReading(
            clock_mhz=_mean([each.clock_mhz for each in self.taken]),
            power_w=_mean([each.power_w for each in self.taken]),
        )


@contextmanager
def watched(uuid: str, read: Callable[[], DeviceReading], command: Sequence[str] = COMMAND) -> Iterator[Readings]:
    """Collect the readings of the GPU `uuid` while the block runs; they are complete after it.

    nvidia-smi reads in a process of its own. Where it shows nothing, `read` is called once, at the end of the block.
    """
    readings = Readings()
    watcher = _start([*command, f"--id={uuid}"])
    try:
        yield readings
    finally:
        if watcher is not None:
            readings.taken += parse(_stop(watcher))
    if not readings.taken:
        readings.taken.append(read())


def parse(printed: str) -> list[DeviceReading]:
    """The readings in lines of `clock, power` in MHz and W; what a driver cannot show ("[N/A]") is None."""
    lines = [line.split(",") for line in printed.splitlines()]
    return [DeviceReading(clock_mhz=_number(line[0]), power_w=_number(line[1])) for line in lines if len(line) == 2]


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _start(command: Sequence[str]) -> subprocess.Popen[str] | None:
    try:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    except OSError:
        return None


def _stop(watcher: subprocess.Popen[str]) -> str:
    watcher.terminate()
    try:
        return watcher.communicate(timeout=STOP_S)[0]
    except subprocess.TimeoutExpired:
        watcher.kill()
        return watcher.communicate()[0]
