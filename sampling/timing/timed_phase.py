"""A phase of a workload on a device, and the timer of the device: one run of it, timed on its own or among others."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from sampling.call import Phase
from sampling.hardware.readings import DeviceReading
from sampling.timing.timer import Ranks, TimerSettings, combined, unlimited
from sampling.torch_work.workload_protocols import Workload


class DeviceTimer(Protocol):
    """Times runs on a device."""

    def flush_caches(self, workload: Workload) -> None:
        """Have the workload's next run find cold caches."""

    def launching(self, run: Callable[[], None]) -> tuple[float, float]:
        """µs that the host takes to launch a run on an idle device, and µs from its start on the device to its end."""

    def wait(self, wait_us: float) -> None:
        """Have the device do nothing for about `wait_us` before what is queued next."""

    def isolated(self, run: Callable[[], None], *, lead: Callable[[], None]) -> float:
        """µs of a run on an idle device, from the end of what `lead` queues."""

    def queued(self, run: Callable[[], None]) -> Callable[[], float]:
        """Queue a run behind earlier ones; the function returned gives its µs after the device is done."""

    def replayed(self, workload: Workload, phase: Phase) -> float | None:
        """µs of the phase as a replayed graph; None for one that is not captured. CaptureError where the capture
        fails, torch.OutOfMemoryError where it lacks the memory."""

    def synchronize(self) -> None: ...

    def rest(self, seconds: float) -> None: ...

    def now_s(self) -> float: ...

    def reading(self) -> DeviceReading: ...


def no_alignment() -> None:
    """Queues nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TimedPhase:
    """A phase of a workload, its timer, and the ranks that time it.

    `as_built` is the workload without protection against failures: a failed capture is not a failure of the call.
    `align` queues something that ends on all ranks at the same time; each timed run starts after it.
    """

    kind: str
    workload: Workload
    as_built: Workload
    phase: Phase
    timer: DeviceTimer
    ranks: Ranks
    together: bool
    done_per_run: int
    settings: TimerSettings
    align: Callable[[], None] = no_alignment
    left_s: Callable[[], float] = unlimited
    """Seconds that are left, the same on all ranks."""
    wait_us: float = 0.0
    """Wait of the device before each run, during which the host launches the run."""

    def isolated(self) -> float:
        self._make_ready()
        return self.timer.isolated(self._run, lead=self._lead)

    def launching(self) -> tuple[float, float]:
        self._make_ready()
        return self.timer.launching(self._run)

    def queued(self) -> Callable[[], float]:
        self.workload.prepare(self.phase)
        self.timer.flush_caches(self.workload)
        self._lead()
        return self.timer.queued(self._run)

    def _make_ready(self) -> None:
        self.workload.prepare(self.phase)
        self.timer.flush_caches(self.workload)
        self.timer.synchronize()
        self.ranks.barrier()

    def _lead(self) -> None:
        if self.wait_us:
            self.timer.wait(self.wait_us)
        self.align()

    def _run(self) -> None:
        self.workload.run(self.phase)

    def combined(self, own_times: list[float]) -> list[float]:
        return combined(own_times, self.ranks, self.together, self.done_per_run)
