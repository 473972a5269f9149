"""The host's launching of a phase's kernels: kept out of the device's time, and timed by itself.

A call of many small kernels takes the host longer to launch than the device to run. Timed on an idle device it would count the
host, which a training step hides behind the kernels before it; so the device first waits while the host launches.
"""

import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

import torch

from sampling.call import Phase
from sampling.timing.failures import NoOpAfterFailure
from sampling.timing.timed_phase import TimedPhase
from sampling.timing.timer import Timing
from sampling.torch_work.workload_protocols import Forgets, Workload

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


# Times a phase captured as a graph and replayed, which leaves out the host's launching of its kernels.

WARM_UPS = 3
"""Runs before a capture: libraries choose kernels and take their workspaces in the first ones."""
REPLAYS = 11
CAPTURED: tuple[Phase, ...] = ("forward", "backward", "backward_accumulate")


class CaptureError(Exception):
    """A phase that cannot be captured, for the reason in the message; the device is as it was before."""


def replayed_us(
    workload: Workload,
    phase: Phase,
    device: torch.device,
    *,
    flush: Callable[[], None],
    isolated: Callable[[Callable[[], None]], float],
) -> float | None:
    """Median µs of a replay on a cold cache; None for a phase that is not captured. Raises CaptureError where a capture fails,
    and torch.OutOfMemoryError where this call alone is too large for one."""
    if phase not in CAPTURED or not isinstance(workload, Forgets):
        return None
    workload.forget()
    try:
        graph = _captured(workload, phase, device)
        times = []
        for _ in range(REPLAYS):
            flush()
            times.append(isolated(graph.replay))
    except torch.OutOfMemoryError:
        torch.cuda.synchronize(device)
        raise
    except RuntimeError as error:  # torch raises CUDA's own errors as this
        torch.cuda.synchronize(device)  # raises again where the device itself has failed
        raise CaptureError(str(error).strip().partition("\n")[0]) from None
    finally:
        workload.forget()
    return statistics.median(times)


def _captured(workload: Workload, phase: Phase, device: torch.device) -> torch.cuda.CUDAGraph:
    stream: torch.cuda.Stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        for _ in range(WARM_UPS):
            workload.prepare(phase)
            workload.run(phase)
        workload.prepare(phase)
    torch.cuda.synchronize(device)
    graph = torch.cuda.CUDAGraph()
    pool = torch.cuda.graph_pool_handle()
    # threads of a communication library may ask the driver things meanwhile
    capture = torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local")
    with _restoring(device, pool), capture:
        workload.run(phase)
    return graph


@contextmanager
def _restoring(device: torch.device, pool: tuple[int, int]) -> Iterator[None]:
    """Puts stream, random generator and memory pool back where the capture in the block fails.

    torch restores them only after a capture that ends well: otherwise the next calls would run on the captured stream, every
    random number would be refused, and the allocator would free nothing.
    """
    index = torch.cuda.current_device() if device.index is None else device.index
    stream, generator = torch.cuda.current_stream(device), torch.cuda.default_generators[index]
    before = generator.clone_state()
    try:
        yield
    except BaseException:
        torch.cuda.set_stream(stream)
        with suppress(RuntimeError):  # the capture's error, raised once more
            torch.cuda.synchronize(device)
        generator.graphsafe_set_state(before)
        for give_back in (torch._C._cuda_endAllocateToPool, torch._C._cuda_releasePool):
            with suppress(RuntimeError):  # a capture that failed at its start or its very end took or gave back less
                give_back(index, pool)
        raise
