"""A GEMM and a collective run at the same time, one timed while the other is busy."""

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from sampling.call import Phase
from sampling.cells.overlap import REPEATS, Overlap
from sampling.torch_work.build import build, builds
from sampling.torch_work.collectives.kinds import CollectiveWorkload, Outside
from sampling.torch_work.collectives.process_groups import Agreement, present
from sampling.torch_work.workload_protocols import Workload

IN_FLIGHT = 2
"""Pieces of background work in a GPU's queue: one that runs and one that follows without a gap."""


@builds(Overlap)
def overlap(call: Overlap, device: torch.device) -> Workload:
    group = present().own(call.communication)
    return Outside() if group is None else OverlapWorkload(call, device, group)


class OverlapWorkload:
    """One of the two in the foreground, REPEATS times under a clock of its own; the other in the background, in a thread.

    The clock starts when the background runs on every rank, and the background runs until the clocks of all ranks have
    stopped. Every rank then completes as many collectives as the one that started most.
    """

    def __init__(self, overlap: Overlap, device: torch.device, group: Any) -> None:
        self._device = device
        self._gemm = build(overlap.gemm, device)
        self._communicate = CollectiveWorkload(overlap.communication, device, group)
        self._agreement = Agreement(present().agreement(overlap.communication))
        self._foreground_us = 0.0

    def prepare(self, phase: Phase) -> None:
        self._gemm.prepare("forward")
        self._communicate.prepare("forward")

    def run(self, phase: Phase) -> None:
        pieces = [lambda: self._gemm.run("forward"), lambda: self._communicate.run("forward")]
        if phase == "communication_beside":
            pieces.reverse()
        foreground, background = pieces
        busy = Background(background, self._device)
        busy.wait_until_running()
        self._agreement.barrier()
        self._foreground_us = self._clock(foreground)
        self._agreement.barrier()
        begun = busy.halt()
        if phase == "compute_beside":
            # a collective that only some ranks have started needs the others
            begun = round(self._agreement.largest(begun))
        busy.finish(begun)

    def stopwatch(self, run: Callable[[], None]) -> float:
        """µs of the foreground; the rest of the run makes sure that the two overlap."""
        run()
        return self._foreground_us

    def _clock(self, piece: Callable[[], None]) -> float:
        if self._device.type == "cpu":
            start_ns = time.perf_counter_ns()
            for _ in range(REPEATS):
                piece()
            return (time.perf_counter_ns() - start_ns) / 1e3
        start, end = (torch.Event(device=self._device, enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(REPEATS):
            piece()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end) * 1e3)


class Background:
    """A thread that repeats `piece` from now until `finish`, on a GPU in a stream of its own."""

    def __init__(self, piece: Callable[[], None], device: torch.device) -> None:
        self._piece = piece
        self._device = device
        self._changed = threading.Condition()
        self._begun = 0
        self._ended = 0
        self._limit: int | None = None
        self._final = False
        self._error: BaseException | None = None
        self._stream: torch.cuda.Stream | None = None
        if device.type != "cpu":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            self._stream.wait_stream(torch.cuda.current_stream(device))
        self._thread = threading.Thread(target=self._run, name="background", daemon=True)
        self._thread.start()

    def wait_until_running(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._ended > 0 or self._error)
        self._raise_error()

    def halt(self) -> int:
        """Start no further piece; returns the number started."""
        with self._changed:
            self._limit = self._begun
            return self._begun

    def finish(self, pieces: int) -> None:
        """Complete this number of pieces and end."""
        with self._changed:
            self._limit, self._final = pieces, True
            self._changed.notify_all()
        self._thread.join()
        self._raise_error()

    def _raise_error(self) -> None:
        if self._error:
            raise self._error

    def _run(self) -> None:
        try:
            if self._stream is None:
                self._repeat(nullcontext(), lambda: True)
            else:
                torch.cuda.set_device(self._device)
                self._repeat(torch.cuda.stream(self._stream), _Queue(self._stream).wait_for_the_oldest)
                self._stream.synchronize()
        except BaseException as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _repeat(self, on_stream: AbstractContextManager[object], one_ended: Callable[[], bool]) -> None:
        with on_stream:
            while self._may_begin():
                self._piece()
                if one_ended():
                    with self._changed:
                        self._ended += 1
                        self._changed.notify_all()

    def _may_begin(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._limit is None or self._begun < self._limit or self._final)
            if self._limit is not None and self._begun >= self._limit:
                return False
            self._begun += 1
            return True


class _Queue:
    """A limit of IN_FLIGHT pieces on how far the host runs ahead of a stream."""

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self._stream = stream
        self._pieces: deque[torch.cuda.Event] = deque()

    def wait_for_the_oldest(self) -> bool:
        """Wait until fewer than IN_FLIGHT pieces are queued; False if none had to be waited for."""
        self._pieces.append(self._stream.record_event())
        if len(self._pieces) < IN_FLIGHT:
            return False
        self._pieces.popleft().synchronize()
        return True
