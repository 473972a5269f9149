"""The timer of a GPU on a device that works through a queue while the host goes on."""

from types import SimpleNamespace

import pytest
import torch

from sampling.timing.gpu_timer import GpuTimer

CYCLES_PER_US = 1980.0
KERNEL_US, LAUNCH_US = 2.0, 6.0


class Queue:
    """A device's queue: the host launches a kernel in LAUNCH_US, and the device takes it up when its queue is empty."""

    def __init__(self) -> None:
        self.host_us = self.free_us = 0.0

    def add(self, work_us: float, launch_us: float = 0.0) -> None:
        self.host_us += launch_us
        self.free_us = max(self.free_us, self.host_us) + work_us

    def event(self, **_: object) -> SimpleNamespace:
        event = SimpleNamespace(at_us=0.0)

        def record() -> None:
            self.add(0.0)
            event.at_us = self.free_us

        event.record = record
        event.elapsed_time = lambda later: (later.at_us - event.at_us) / 1e3
        return event

    def synchronize(self, *_: object) -> None:
        self.host_us = max(self.host_us, self.free_us)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        properties = SimpleNamespace(L2_cache_size=1024)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
        monkeypatch.setattr(torch.cuda, "synchronize", self.synchronize)
        monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: self.add(cycles / CYCLES_PER_US))
        monkeypatch.setattr(torch, "Event", self.event)
        clock = "sampling.timing.stopwatch.time.perf_counter_ns"
        monkeypatch.setattr(clock, lambda: round(self.host_us * 1e3))


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    made = Queue()
    made.install(monkeypatch)
    return made


@pytest.mark.parametrize("kernels", [1, 10])
def test_a_waiting_device_hides_the_launching_of_many_small_kernels(queue: Queue, kernels: int) -> None:
    timer = GpuTimer(torch.device("cpu"), 1024.0)

    def run() -> None:
        for _ in range(kernels):
            queue.add(KERNEL_US, LAUNCH_US)

    host_us, exposed_us = timer.launching(run)
    assert host_us == pytest.approx(kernels * LAUNCH_US)
    assert exposed_us == pytest.approx(kernels * LAUNCH_US + KERNEL_US)
    assert timer.isolated(run, lead=lambda: timer.wait(1.5 * host_us)) == pytest.approx(kernels * KERNEL_US)
