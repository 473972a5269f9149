"""Times runs on a CUDA or HIP device: by events on its stream, with cold caches, and with readings of the device."""

import time
from collections.abc import Callable
from functools import partial

import torch

from sampling.call import Phase
from sampling.hardware.readings import DeviceReading, read_device
from sampling.timing.launch_time import replayed_us
from sampling.timing.stopwatch import wall_stopwatch
from sampling.timing.timed_phase import no_alignment
from sampling.torch_work.workload_protocols import Rotates, Workload

FLUSH_FACTOR = 2.0
"""Bytes written to flush a cache, as a multiple of its size."""
SPIN_CYCLES = 1_000_000
"""Cycles that are timed once, since their length differs between devices: about 0.5 ms on NVIDIA's, 10 ms on AMD's counter."""


class GpuTimer:
    """The `DeviceTimer` of a GPU whose last-level cache holds `cache_bytes`, or more if the driver says so."""

    def __init__(self, device: torch.device, cache_bytes: float) -> None:
        self._device = device
        self._cache_bytes = max(cache_bytes, float(torch.cuda.get_device_properties(device).L2_cache_size))
        self._scratch = torch.empty(int(FLUSH_FACTOR * self._cache_bytes), dtype=torch.int8, device=device)
        self._fill = 0
        spin = partial(torch.cuda._sleep, SPIN_CYCLES)
        self.isolated(spin)  # loads the kernel
        self._cycles_per_us = SPIN_CYCLES / self.isolated(spin)

    def flush_caches(self, workload: Workload) -> None:
        if not (isinstance(workload, Rotates) and workload.rotates_through(self._cache_bytes)):
            self._flush()

    def _flush(self) -> None:
        self._fill = self._fill % 126 + 1
        self._scratch.fill_(self._fill)

    def launching(self, run: Callable[[], None]) -> tuple[float, float]:
        host_us = 0.0

        def launch() -> None:
            nonlocal host_us
            host_us = wall_stopwatch(run)

        exposed_us = self.isolated(launch)
        return host_us, exposed_us

    def wait(self, wait_us: float) -> None:
        torch.cuda._sleep(int(wait_us * self._cycles_per_us))  # type: ignore[no-untyped-call]

    def isolated(self, run: Callable[[], None], *, lead: Callable[[], None] = no_alignment) -> float:
        self.synchronize()
        lead()
        read = self.queued(run)
        self.synchronize()
        return read()

    def queued(self, run: Callable[[], None]) -> Callable[[], float]:
        start, end = (torch.Event(device=self._device, enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        return lambda: float(start.elapsed_time(end) * 1e3)

    def replayed(self, workload: Workload, phase: Phase) -> float | None:
        return replayed_us(workload, phase, self._device, flush=self._flush, isolated=self.isolated)

    def synchronize(self) -> None:
        torch.cuda.synchronize(self._device)

    def rest(self, seconds: float) -> None:
        self.synchronize()
        time.sleep(seconds)

    def now_s(self) -> float:
        return time.monotonic()

    def reading(self) -> DeviceReading:
        return read_device(self._device)
