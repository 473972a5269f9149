"""Time a list of calls on this rank's device, row by row into the journal, until they or the budget run out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sampling.call import Call, Phase
from sampling.checks import quarantine_reason
from sampling.hardware import Cluster
from sampling.store import Sample
from sampling.timer import Ranks, TimerSettings, choose_stopwatch, time_phase

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """A call and those of its phases that are to be timed."""

    call: Call
    phases: tuple[Phase, ...]


def time_requests(
    requests: Sequence[Request],
    *,
    device: torch.device,
    cluster: Cluster,
    ranks: Ranks,
    session: int,
    deadline_s: float,
    settings: TimerSettings,
    keep: Callable[[Sample], None],
) -> int:
    """Time `requests` in order, handing each row to `keep`; returns how many requests were begun.

    `deadline_s` is on `time.monotonic`; no request is begun after it (all ranks agree on that).
    """
    for begun, request in enumerate(requests):
        if ranks.largest(time.monotonic() - deadline_s) > 0:
            return begun
        for sample in _time_request(request, device, cluster, ranks, session, settings):
            keep(sample)
    return len(requests)


def _time_request(
    request: Request, device: torch.device, cluster: Cluster, ranks: Ranks, session: int, settings: TimerSettings
) -> list[Sample]:
    call, together = request.call, request.call.group_size > 1
    workload = call.build(device)
    stopwatch = choose_stopwatch(device, cluster.threads, together)
    samples = []
    for phase in request.phases:
        timing = time_phase(
            workload,
            phase,
            stopwatch=stopwatch,
            ranks=ranks,
            together=together,
            done_per_run=call.DONE_PER_RUN,
            settings=settings,
        )
        samples.append(
            Sample(
                call=call,
                phase=phase,
                threads=cluster.threads,
                busy_ranks=cluster.gpus_per_node,
                time_us=timing.median_us,
                low_us=timing.low_us,
                high_us=timing.high_us,
                repeats=timing.repeats,
                quarantine=quarantine_reason(call, phase, timing, cluster),
                session=session,
            )
        )
    return samples
