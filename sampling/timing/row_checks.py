"""Rows that must not be learnt from are marked with the reason, never dropped and never used silently."""

from __future__ import annotations

from sampling.call import Call, Phase
from sampling.hardware.cluster import Cluster
from sampling.hardware.cpu_load import OTHERS_LIMIT
from sampling.speed_of_light import physical_bound_us
from sampling.timing.timer import Timing

MEDIAN_ERROR_LIMIT = 0.15
"""How uncertain a median may be (relative, 95 %): beyond it a row teaches less than the physics does."""

CPU_TIME_LOAD_LIMIT = 0.60
"""The same where a thread's own CPU time is counted: others then only cost cache and memory bandwidth."""


def quarantine_reason(call: Call, phase: Phase, timing: Timing, cluster: Cluster) -> str:
    """Why the row is not to be trusted; '' for a good one."""
    bound_us = physical_bound_us(call, phase, cluster)
    if timing.median_us < bound_us:
        return f"faster than the physical bound: {timing.median_us:.3g} µs, at peak {bound_us:.3g} µs"
    if timing.median_error > MEDIAN_ERROR_LIMIT:
        return f"noisy: the median is uncertain by {timing.median_error:.0%}, limit {MEDIAN_ERROR_LIMIT:.0%}"
    limit = OTHERS_LIMIT if timing.by_wall else CPU_TIME_LOAD_LIMIT
    if timing.other_load > limit:
        return f"other processes took {timing.other_load:.0%} of the CPU, limit {limit:.0%}"
    return ""
