"""Time a list of calls on this rank's device, row by row into the journal, until they or the budget run out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING

from sampling.arithmetic.operator import Operator
from sampling.call import Call, Phase, Request
from sampling.hardware.cluster import Cluster
from sampling.hardware.cores import release_other_threads
from sampling.store.pace_log import PaceReading
from sampling.store.sample import Sample
from sampling.timing.device_states import time_states
from sampling.timing.failures import NoOpAfterFailure, SkippedCalls, agreed, failure, refusal
from sampling.timing.launch_time import Captures
from sampling.timing.pace import PaceMeter, reference_calls
from sampling.timing.row_checks import timed_row
from sampling.timing.stopwatch import Stopwatch, host_stopwatch, process_stopwatch
from sampling.timing.timed_phase import TimedPhase, no_alignment
from sampling.timing.timer import Ranks, TimerSettings, Timing, time_phase
from sampling.torch_work.build import build, forget_compiled
from sampling.torch_work.collectives.process_groups import align, are_present
from sampling.torch_work.workload_protocols import NamesKernel, Noted, SelfTimed, Workload
from sampling.units import MIB

if TYPE_CHECKING:
    import torch

    from sampling.timing.gpu_timer import GpuTimer


def unnoted(call: Call) -> AbstractContextManager[None]:
    """Notes nothing of a call that is begun."""
    return nullcontext()


def untold(call: Call, reason: str) -> None:
    """Reports no call that is left out."""


def time_requests(
    requests: Iterable[Request],
    *,
    device: torch.device,
    cluster: Cluster,
    ranks: Ranks,
    session: int,
    deadline_s: float,
    settings: TimerSettings,
    keep: Callable[[Sample], None],
    say: Callable[[str], None],
    left_out: Callable[[Call, str], None] = untold,
    begun: Callable[[Call], AbstractContextManager[None]] = unnoted,
    keep_reading: Callable[[PaceReading], None] | None = None,
) -> None:
    """Time `requests` in order and hand each row to `keep` as soon as its phase is timed.

    `deadline_s` is on `time.monotonic`: no phase is begun after it, and one that is begun has as many repeats as fit before it
    (all ranks agree on that). A call that the device lacks the memory, the precision or the software for has no row:
    `left_out` gets it with the reason, and `say` each reason once. Each call is built and timed inside `begun`, which sees an error
    that ends this process. `keep_reading` gets the readings of the machine's pace, which are taken between the phases where it is given.
    """
    skipped = SkippedCalls(say)
    timer = _CallTimer(
        device=device,
        cluster=cluster,
        ranks=ranks,
        session=session,
        settings=settings,
        deadline_s=deadline_s,
        keep=keep,
        say=say,
        left_out=left_out,
        skipped=skipped,
        captures=Captures(say),
        meter=None,
    )
    if keep_reading:
        timer = replace(timer, meter=timer.meter_for(keep_reading))
    for request in requests:
        if timer.left_s() <= 0:
            break
        with begun(request.call):
            timer.time(request)
    if timer.meter:
        timer.meter.read()
    skipped.summarize()


@dataclass(frozen=True, kw_only=True, slots=True)
class _CallTimer:
    """Times calls on a rank's device."""

    device: torch.device
    cluster: Cluster
    ranks: Ranks
    session: int
    settings: TimerSettings
    deadline_s: float
    keep: Callable[[Sample], None]
    say: Callable[[str], None]
    left_out: Callable[[Call, str], None]
    skipped: SkippedCalls
    captures: Captures
    meter: PaceMeter | None
    """Reads the machine's pace between phases; None where nobody keeps it."""

    def meter_for(self, keep: Callable[[PaceReading], None]) -> PaceMeter:
        return PaceMeter(
            cluster=self.cluster,
            device=self.device,
            ranks=self.ranks,
            session=self.session,
            keep=keep,
            stopwatch_of=lambda call: stopwatch_of_reference(call, self.device, self.cluster),
            calls={
                resource: call
                for resource, call in reference_calls(self.cluster).items()
                if resource != "wire" or are_present()
            },
        )

    def left_s(self) -> float:
        """Seconds until the deadline on the rank where it comes first."""
        return -self.ranks.largest(time.monotonic() - self.deadline_s)

    def time(self, request: Request) -> None:
        """Keep the rows of a request; if it fails, those of the phases before."""
        reason = refusal(request.call, self.cluster) or self._time_phases(request)
        if reason:
            self.left_out(request.call, reason)
            self.skipped.add(reason)
            _free_memory()

    def _time_phases(self, request: Request) -> str:
        """Keep the rows; the reason if some could not be timed, or ''."""
        call, reason, workload = request.call, "", None
        forget_compiled()
        try:
            workload = build(call, self.device)
        except Exception as error:
            reason = failure(error, spans_ranks=call.group_size > 1)
            if not reason:
                raise
        if reason := agreed(reason, self.ranks):
            return self._about(call, reason)
        assert workload is not None
        release_other_threads()
        if isinstance(workload, Noted) and workload.note:
            self.say(f"{call.NAME}: {workload.note}")
        tolerant = NoOpAfterFailure(workload, spans_ranks=call.group_size > 1)
        for phase in request.phases:
            if self.left_s() <= 0:
                break
            if self.meter:
                self.meter.read_if_due()
            begun_s = time.time()
            timings = self._timings(call, workload, tolerant, phase)
            if reason := agreed(tolerant.reason, self.ranks):
                return self._about(call, reason)
            for timing in timings:
                ran_kernel = workload.ran_kernel if isinstance(workload, NamesKernel) else ""
                row = timed_row(
                    call,
                    phase,
                    timing,
                    cluster=self.cluster,
                    session=self.session,
                    ran_kernel=ran_kernel,
                    at_s=(begun_s + time.time()) / 2,
                )
                self.keep(row)
            if not timings:
                break
        return ""

    @staticmethod
    def _about(call: Call, reason: str) -> str:
        return reason if reason.startswith(call.NAME) else f"{call.NAME}: {reason}"

    def _timings(self, call: Call, workload: Workload, tolerant: NoOpAfterFailure, phase: Phase) -> list[Timing]:
        """One timing on a CPU or of a workload with a clock of its own, else one in each state of the device; none where the
        deadline is too near."""
        together = call.group_size > 1
        # ranks outside the call's group have no such workload, and go the same way
        self_timed = self.ranks.largest(float(isinstance(workload, SelfTimed))) > 0
        if self.device.type != "cpu" and not self_timed:
            timed = TimedPhase(
                kind=call.NAME,
                workload=tolerant,
                as_built=workload,
                phase=phase,
                timer=gpu_timer(self.device, self.cluster.gpu.cache_mib * MIB),
                ranks=self.ranks,
                together=together,
                done_per_run=call.DONE_PER_RUN,
                settings=self.settings,
                align=partial(align, self.device) if together else no_alignment,
                left_s=self.left_s,
            )
            # communication draws little power
            return time_states(timed, self.captures, sustained=isinstance(call, Operator))
        timing = time_phase(
            tolerant,
            phase,
            stopwatch=workload.stopwatch if isinstance(workload, SelfTimed) else self._stopwatch_of(call),
            ranks=self.ranks,
            together=together,
            done_per_run=call.DONE_PER_RUN,
            settings=self.settings,
            left_s=self.left_s,
        )
        return [timing] if timing else []

    def _stopwatch_of(self, call: Call) -> Stopwatch:
        return stopwatch_of(call, self.device, self.cluster)


def stopwatch_of(call: Call, device: torch.device, cluster: Cluster) -> Stopwatch:
    """The clock by which a call is timed on a device of the cluster."""
    if device.type == "cpu":
        return host_stopwatch(cluster.threads, call.group_size > 1)
    return gpu_timer(device, cluster.gpu.cache_mib * MIB).isolated


def stopwatch_of_reference(call: Call, device: torch.device, cluster: Cluster) -> Stopwatch:
    """The clock by which a reference of the pace is timed: that of calls, but on several threads of a CPU the mean of their CPU times,
    which other processes that take a core from one of them do not lengthen."""
    if device.type != "cpu" or call.group_size > 1 or cluster.threads == 1:
        return stopwatch_of(call, device, cluster)
    return lambda run: process_stopwatch(run) / cluster.threads


@cache
def gpu_timer(device: torch.device, cache_bytes: float) -> GpuTimer:
    """The timer of all calls: it holds the buffer that flushes the cache."""
    from sampling.timing.gpu_timer import GpuTimer

    return GpuTimer(device, cache_bytes)


def _free_memory() -> None:
    """Free what a failed call held. Raises where it left the device unusable, so that no later call gets the blame."""
    import gc

    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
