"""The rows of the store that timings become, and their checks: a bad one is kept, marked with the reason, and never used to fit models."""

from enum import Enum

from sampling.call import Call, Phase
from sampling.hardware.cluster import Cluster
from sampling.hardware.readings import OTHERS_LIMIT
from sampling.number_text import plain, whole_percent
from sampling.speed_of_light import physical_bound_us
from sampling.store.sample import Sample
from sampling.timing.timer import Timing

MEDIAN_ERROR_LIMIT = 0.15
"""Largest relative half-width of a median's 95 % interval: beyond it a roofline is more accurate than the row."""

CPU_TIME_LOAD_LIMIT = 0.60
"""Limit of other processes' load where the thread's own CPU time is counted: they then only take cache and bandwidth."""


class Quarantine(Enum):
    """Why rows are quarantined; the value begins the reason in the row."""

    IMPOSSIBLE = "faster than the physical bound"
    NOISY = "noisy"
    BUSY = "other processes took"

    @property
    def in_words(self) -> str:
        """Why such rows are set aside, as a phrase."""
        if self is Quarantine.IMPOSSIBLE:
            return "faster than the device can be"
        return "repeats that differ too much" if self is Quarantine.NOISY else "load of other processes"

    @property
    def advice(self) -> str:
        """Advice on such rows, in words."""
        if self is Quarantine.IMPOSSIBLE:
            return "the peaks in the hardware file are too low for this device, or a kernel did not do the work: correct the file"
        if self is Quarantine.NOISY:
            return "run the same command again, which times them anew"
        return "run the same command again when the machine is quiet, which times them anew"


def kind_of(reason: str) -> Quarantine:
    """The kind of a reason that `quarantine_reason` gave."""
    return next(kind for kind in Quarantine if reason.startswith(kind.value))


def why_set_aside(reason: str) -> str:
    """The reason of a quarantined row in words that many rows share; that of an imported row without its figures."""
    shared = (kind.in_words for kind in Quarantine if reason.startswith(kind.value))
    return next(shared, reason.partition(":")[0])


def quarantine_reason(call: Call, phase: Phase, timing: Timing, cluster: Cluster) -> str:
    """Why the row must not be trusted; '' for a good one."""
    bound_us = physical_bound_us(call, phase, cluster)
    if timing.median_us < bound_us:
        return f"{Quarantine.IMPOSSIBLE.value}: {plain(timing.median_us)} µs, at peak {plain(bound_us)} µs"
    if timing.median_error > MEDIAN_ERROR_LIMIT:
        return f"{Quarantine.NOISY.value}: the median is uncertain by {whole_percent(timing.median_error)}, limit {whole_percent(MEDIAN_ERROR_LIMIT)}"
    limit = OTHERS_LIMIT if timing.by_wall else CPU_TIME_LOAD_LIMIT
    if timing.other_load > limit:
        return f"{Quarantine.BUSY.value} {whole_percent(timing.other_load)} of the CPU, limit {whole_percent(limit)}"
    return ""


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
