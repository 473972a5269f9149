"""Times a phase captured as a graph and replayed, which leaves out the host's launching of its kernels."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch

from sampling.call import Phase
from sampling.torch_work.workload_protocols import Forgets, Workload

WARM_UPS = 3
"""Runs before a capture: libraries choose kernels and take their workspaces in the first ones."""
REPLAYS = 11
CAPTURED: tuple[Phase, ...] = ("forward", "backward", "backward_accumulate")


def replayed_us(
    workload: Workload,
    phase: Phase,
    device: torch.device,
    *,
    flush: Callable[[], None],
    isolated: Callable[[Callable[[], None]], float],
) -> float | None:
    """Median µs of a replay on a cold cache; None if the phase cannot be captured."""
    if phase not in CAPTURED or not isinstance(workload, Forgets):
        return None
    workload.forget()
    try:
        graph = _captured(workload, phase, device)
        times = []
        for _ in range(REPLAYS):
            flush()
            times.append(isolated(graph.replay))
    except (
        RuntimeError
    ):  # a capture fails with CUDA's own errors, which torch raises as this, and leaves the device usable
        return None
    finally:
        workload.forget()
        torch.cuda.synchronize(device)
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
    # threads of a communication library may ask the driver things meanwhile
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        workload.run(phase)
    return graph
