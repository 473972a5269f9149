"""Memory-bound operators: bytes at the share of streaming bandwidth that each declares, and a start for each kernel."""

from __future__ import annotations

from sampling.arithmetic.operator import Operator
from sampling.call import Phase
from sampling.hardware.cluster import Gpu

START_US = 3.0
"""Start of a kernel: 1–11 µs of the linear fits to the samples of `sampling.arithmetic.bandwidth`, less on the GH200."""
PEAK_SHARE = 0.7
"""Share of the peak that products inside such an operator reach, by analogy with products on tensor cores."""


def memory_bound_us(call: Operator, phase: Phase, gpu: Gpu) -> tuple[float, float]:
    share = gpu.efficiency["elementwise"] * call.BANDWIDTH.share(phase, gpu.architecture)
    us = call.bytes_moved(phase) / (share * gpu.bytes_per_us())
    if flops := call.flops(phase):
        us += flops / (PEAK_SHARE * gpu.peak_flops_per_us(call.compute_dtype))
    return us + START_US * call.kernels, call.BANDWIDTH.width
