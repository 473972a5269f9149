"""Times a phase captured as a graph and replayed, which leaves out the host's launching of its kernels."""

import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import torch

from sampling.call import Phase
from sampling.torch_work.workload_protocols import Forgets, Workload

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
