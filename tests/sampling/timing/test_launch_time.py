"""A capture that fails on a device that behaves as CUDA does: what torch leaves behind is put back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from sampling.call import Phase
from sampling.timing.launch_time import CaptureError, replayed_us

DEVICE = torch.device("cuda", 0)
POOL = (0, 7)


class Generator:
    """Refuses random numbers while its state belongs to a capture."""

    def __init__(self) -> None:
        self.state = SimpleNamespace(capturing=False)

    def clone_state(self) -> Generator:
        return Generator()

    def graphsafe_set_state(self, other: Generator) -> None:
        self.state = other.state

    def draw(self) -> None:
        if self.state.capturing:
            raise RuntimeError("Offset increment outside graph capture encountered unexpectedly.")


class Cuda:
    """A device's current stream, its generator, and the pools that a capture allocates from.

    As in torch, the end of an invalid capture raises before it leaves the stream, the generator and the pool.
    """

    def __init__(self) -> None:
        self.current = "default"
        self.generator = Generator()
        self.recording: set[tuple[int, int]] = set()
        self.held: set[tuple[int, int]] = set()
        self.capturing = self.invalid = False
        self.errors: list[str] = []

    @contextmanager
    def stream(self, stream: SimpleNamespace) -> Iterator[None]:
        before, self.current = self.current, stream.name
        yield
        self.current = before

    @contextmanager
    def graph(self, graph: object, *, pool: tuple[int, int], stream: SimpleNamespace, **_: str) -> Iterator[None]:
        self.current = stream.name
        self.generator.state.capturing = self.capturing = True
        self.recording.add(pool)
        self.held.add(pool)
        try:
            yield
        finally:
            self.capturing = False
            if self.invalid:
                self.errors.append("CUDA error: operation failed due to a previous error during capture")
                raise RuntimeError(self.errors[-1])
            self.recording.discard(pool)
            self.generator.state.capturing = False
            self.current = "default"

    def read_back(self) -> None:
        """What `tensor.tolist()` does."""
        if self.capturing:
            self.invalid = True
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing\nand advice")

    def synchronize(self, device: torch.device) -> None:
        if self.errors:
            raise RuntimeError(self.errors.pop())

    def end(self, device: int, pool: tuple[int, int]) -> None:
        if pool not in self.recording:
            raise RuntimeError("not currently recording to mempool_id")
        self.recording.discard(pool)

    def set_stream(self, stream: SimpleNamespace) -> None:
        self.current = stream.name

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def stream_of(_: torch.device) -> SimpleNamespace:
            return SimpleNamespace(name="side", wait_stream=lambda stream: None)

        for name, stub in {
            "Stream": stream_of,
            "current_stream": lambda _: SimpleNamespace(name=self.current),
            "stream": self.stream,
            "set_stream": self.set_stream,
            "CUDAGraph": lambda: SimpleNamespace(replay=lambda: None),
            "graph": self.graph,
            "graph_pool_handle": lambda: POOL,
            "synchronize": self.synchronize,
            "default_generators": (self.generator,),
        }.items():
            monkeypatch.setattr(torch.cuda, name, stub)
        monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", self.end, raising=False)
        monkeypatch.setattr(torch._C, "_cuda_releasePool", lambda _, pool: self.held.discard(pool), raising=False)


class Work:
    """Draws a random number; `read_back` is what it does besides."""

    def __init__(self, cuda: Cuda, read_back: Callable[[], None]) -> None:
        self._cuda = cuda
        self._read_back = read_back

    def prepare(self, phase: Phase) -> None:
        """Nothing to do."""

    def forget(self) -> None:
        """Nothing to drop."""

    def run(self, phase: Phase) -> None:
        if not self._cuda.capturing:
            self._cuda.generator.draw()
        self._read_back()


def replay(work: Work) -> float | None:
    return replayed_us(work, "forward", DEVICE, flush=lambda: None, isolated=lambda run: 5.0)


def test_a_failed_capture_leaves_stream_generator_and_pool_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = Cuda()
    cuda.install(monkeypatch)
    with pytest.raises(CaptureError, match="during capture"):
        replay(Work(cuda, cuda.read_back))
    assert cuda.current == "default"
    assert not cuda.recording
    assert not cuda.held
    assert not cuda.errors
    cuda.generator.draw()
    cuda.invalid = False
    assert replay(Work(cuda, lambda: None)) == 5.0  # and the next call is captured


def test_a_device_that_failed_for_good_is_no_failed_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = Cuda()
    cuda.install(monkeypatch)

    def fault() -> None:
        cuda.errors += ["CUDA error: an illegal memory access was encountered"] * 3
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    with pytest.raises(RuntimeError, match="illegal memory access"):
        replay(Work(cuda, fault))


def test_a_capture_that_runs_out_of_memory_is_reported_from_one_that_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cuda = Cuda()
    cuda.install(monkeypatch)

    def out_of_memory() -> None:
        if cuda.capturing:
            raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        replay(Work(cuda, out_of_memory))
    assert cuda.current == "default"
    assert not cuda.held
