"""The row of the store that a timing becomes."""

from __future__ import annotations

from sampling.call import Call, Phase
from sampling.hardware.cluster import Cluster
from sampling.store.sample import Sample
from sampling.timing.row_checks import quarantine_reason
from sampling.timing.timer import Timing


def timed_row(
    call: Call,
    phase: Phase,
    timing: Timing,
    *,
    cluster: Cluster,
    session: int,
    ran_kernel: str = "",
    at_s: float | None = None,
) -> Sample:
    """The row of a phase timed on every rank of the cluster's node, quarantined where the timing is not sound."""
    return Sample(
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
        state=timing.state,
        clock_mhz=timing.clock_mhz,
        power_w=timing.power_w,
        launch_us=timing.launch_us,
        exposed_us=timing.exposed_us,
        ran_kernel=ran_kernel,
        at_s=at_s,
    )
