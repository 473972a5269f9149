"""A rehearsal of a GPU session: the real plan, timer, log and archive over a fake device with a fake clock.

The fake device takes the roofline's time for each run and the host's time for each launch, so that the seconds of a rehearsal are
the estimate of the session's. What it cannot tell is how a real device fails: that is scripted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from sampling.arithmetic.operator import Operator
from sampling.call import Call, Phase, Request
from sampling.hardware.cluster import Cluster
from sampling.hardware.power import Reading
from sampling.speed_of_light import physical_bound_us
from sampling.store.sample import Sample
from sampling.timing.device_states import time_states
from sampling.timing.graph_replay import REPLAYS, WARM_UPS, CaptureError
from sampling.timing.launch_time import Captures
from sampling.timing.timed_phase import TimedPhase
from sampling.timing.timed_row import timed_row
from sampling.timing.timer import TimerSettings
from sampling.torch_work.collectives.agreement import LoneRank
from sampling.torch_work.workload_protocols import Workload

START_S = 15.0
"""Time from a worker's start to its first call: torch's import, the device's context, the draw of the plan."""
BUILD_S = 0.15
"""Time to make a call's tensors and modules, and for libraries to load its kernels."""
HOST_US = 200.0
"""Time of the host per run: the preparation (a backward needs a forward), the flush of the cache, two events."""
LAUNCH_US = 6.0
"""Time of the host per kernel of a run."""
OVER_THE_BOUND = 1.4
"""Time of a run over the physical bound: 70 % of the peak. This and the times above are round figures that no GPU has confirmed."""
REFUSAL = "the device lacks what this call needs"
BURST_MHZ, SUSTAINED_MHZ, WATTS = 1980.0, 1755.0, 650.0


@dataclass(slots=True)
class FakeClock:
    """Seconds that pass only where something takes time."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now

    def pass_s(self, seconds: float) -> None:
        self.now += seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Script:
    """The faults of a rehearsal: kinds of calls of which no graph can be captured, calls that the device refuses, and calls that
    end it."""

    uncaptured: Collection[str] = ()
    refused: Collection[Call] = ()
    fatal: Collection[Call] = ()


class FakeDeviceError(RuntimeError):
    """A device that failed, and fails whatever it is asked next until its process ends."""


@dataclass(slots=True)
class FakeDevice:
    """The `DeviceTimer` of a fake device while it runs one phase of `run_us`, whose kernels the host launches in `launch_us`."""

    clock: FakeClock
    run_us: float
    launch_us: float
    captured: bool
    busy: bool = False

    def flush_caches(self, workload: Workload) -> None:
        """The host's time for it is in HOST_US."""

    def launching(self, run: Callable[[], None]) -> tuple[float, float]:
        exposed_us = max(self.run_us, self.launch_us)
        self.clock.pass_s((HOST_US + exposed_us) / 1e6)
        return self.launch_us, exposed_us

    def wait(self, wait_us: float) -> None:
        self.clock.pass_s(wait_us / 1e6)

    def isolated(self, run: Callable[[], None], *, lead: Callable[[], None]) -> float:
        self.busy = False
        lead()
        self.clock.pass_s((HOST_US + self.run_us) / 1e6)
        return self.run_us

    def queued(self, run: Callable[[], None]) -> Callable[[], float]:
        self.busy = True
        run_us = self.run_us * BURST_MHZ / SUSTAINED_MHZ
        self.clock.pass_s(max(HOST_US + self.launch_us, run_us) / 1e6)
        return lambda: run_us

    def replayed(self, workload: Workload, phase: Phase) -> float | None:
        self.clock.pass_s((WARM_UPS + REPLAYS) * (HOST_US + self.run_us) / 1e6)
        if not self.captured:
            raise CaptureError("operation not permitted when stream is capturing")
        return self.run_us

    def synchronize(self) -> None:
        """Everything is done at once."""

    def rest(self, seconds: float) -> None:
        self.clock.pass_s(seconds)

    def now_s(self) -> float:
        return self.clock.now

    def reading(self) -> Reading:
        return Reading(clock_mhz=SUSTAINED_MHZ if self.busy else BURST_MHZ, power_w=WATTS)


class NoWork:
    """The workload of a fake device."""

    def prepare(self, phase: Phase) -> None:
        """Nothing to do."""

    def run(self, phase: Phase) -> None:
        """Nothing to do."""


@dataclass(slots=True)
class FakeBench:
    """The `Bench` of a worker on a fake device; a new one is a new process."""

    clock: FakeClock
    cluster: Cluster
    settings: TimerSettings
    session: int
    script: Script
    deadline_s: float
    """Time on the clock after which no phase is begun."""

    def __call__(
        self,
        requests: Iterable[Request],
        *,
        keep: Callable[[Sample], None],
        say: Callable[[str], None],
        left_out: Callable[[Call, str], None],
    ) -> None:
        captures = Captures(say)
        self.clock.pass_s(START_S)
        for request in requests:
            if self.left_s() <= 0:
                break
            self.clock.pass_s(BUILD_S)
            if request.call in self.script.refused:
                left_out(request.call, REFUSAL)
            else:
                self._time(request, keep, captures)

    def left_s(self) -> float:
        return self.deadline_s - self.clock()

    def _time(self, request: Request, keep: Callable[[Sample], None], captures: Captures) -> None:
        for phase in request.phases:
            if self.left_s() <= 0:
                break
            if request.call in self.script.fatal:
                raise FakeDeviceError("an illegal memory access was encountered")
            rows = self._rows(request.call, phase, captures)
            for row in rows:
                keep(row)
            if not rows:
                break

    def _rows(self, call: Call, phase: Phase, captures: Captures) -> list[Sample]:
        kernels = max(1, len(call.parts(phase)))
        timed = TimedPhase(
            kind=call.NAME,
            workload=NoWork(),
            as_built=NoWork(),
            phase=phase,
            timer=FakeDevice(
                self.clock,
                OVER_THE_BOUND * physical_bound_us(call, phase, self.cluster) + 2.0,
                LAUNCH_US * kernels,
                call.NAME not in self.script.uncaptured,
            ),
            ranks=LoneRank(),
            together=False,
            done_per_run=call.DONE_PER_RUN,
            settings=self.settings,
            left_s=self.left_s,
        )
        timings = time_states(timed, captures, sustained=isinstance(call, Operator))
        return [
            timed_row(call, phase, replace(timing, other_load=0.0), cluster=self.cluster, session=self.session)
            for timing in timings
        ]
