"""The host's launching of a phase's kernels: kept out of the device's time, and timed by itself.

A call of many small kernels takes the host longer to launch than the device to run. Timed on an idle device it would count the
host, which a training step hides behind the kernels before it; so the device first waits while the host launches.
"""

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch

from sampling.timing.failures import NoOpAfterFailure
from sampling.timing.graph_replay import CaptureError
from sampling.timing.timed_phase import TimedPhase
from sampling.timing.timer import Timing

LAUNCHES = 7
"""Runs whose launching is timed."""
WAIT_MARGIN = 1.5
"""Wait of the device over the time that the host took to launch a run, so that a slower launch is hidden too."""
LONGEST_WAIT_US = 20_000.0
"""A run that the host launches for longer, because it reads something back from the device, cannot be hidden."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """Medians of a run on an idle device that does not wait, in µs: the host's launching, and the device's time."""

    host_us: float
    exposed_us: float

    @property
    def wait_us(self) -> float:
        """Wait of the device that hides the launching."""
        return min(LONGEST_WAIT_US, WAIT_MARGIN * self.host_us)


def time_launching(phase: TimedPhase) -> Launch:
    """Time LAUNCHES runs; on every rank the times of the slowest."""
    runs = [phase.launching() for _ in range(LAUNCHES)]
    host_us, exposed_us = (phase.ranks.largest(statistics.median(times)) for times in zip(*runs, strict=True))
    return Launch(host_us=host_us, exposed_us=exposed_us)


@dataclass(frozen=True, slots=True)
class Captures:
    """Captures phases as graphs. A kind of call that cannot be captured is reported once by `say`, and not tried again.

    A call that lacks the memory says nothing about the others of its kind, which are smaller or find more of it.
    """

    say: Callable[[str], None]
    _failed: set[str] = field(default_factory=set)

    def with_launch(self, burst: Timing, phase: TimedPhase, launch: Launch) -> Timing:
        """The burst with its time on an idle device, and with what launching adds to that of a replayed graph, or to the burst's own
        where there is no graph."""
        replayed_us = self._replayed_us(phase)
        unlaunched_us = burst.median_us if replayed_us is None else replayed_us / phase.done_per_run
        exposed_us = launch.exposed_us / phase.done_per_run
        return replace(burst, exposed_us=exposed_us, launch_us=max(0.0, exposed_us - unlaunched_us))

    def _replayed_us(self, phase: TimedPhase) -> float | None:
        if phase.kind in self._failed or _has_failed(phase):
            return None
        try:
            return phase.timer.replayed(phase.as_built, phase.phase)
        except torch.OutOfMemoryError:
            self.say(f"{phase.kind}: too little memory to capture a graph of this call")
            return None
        except CaptureError as error:
            self._failed.add(phase.kind)
            self.say(f"{phase.kind}: no graph could be captured, so none is tried again for this kind of call: {error}")
            return None


def _has_failed(phase: TimedPhase) -> bool:
    """Whether a run of the phase failed before, so that a capture would fail with the same error."""
    return isinstance(phase.workload, NoOpAfterFailure) and bool(phase.workload.reason)
