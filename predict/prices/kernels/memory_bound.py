"""Memory-bound operators: bytes at the share of streaming bandwidth that each declares, and a start for each kernel."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from predict.prices.kernels.formulas import formula_of
from sampling.arithmetic.operator import Operator
from sampling.call import Phase
from sampling.hardware.cluster import Gpu
from sampling.operators.routing import Permute, Unpermute

START_US = 3.0
"""Start of a kernel: 1–11 µs of the linear fits to the samples of `sampling.arithmetic.operator`, less on the GH200."""
PEAK_SHARE = 0.7
"""Share of the peak that products inside such an operator reach, by analogy with products on tensor cores."""


def memory_bound_us(call: Operator, phase: Phase, gpu: Gpu) -> tuple[float, float]:
    share = gpu.efficiency["elementwise"] * call.BANDWIDTH.share(phase, gpu.architecture)
    us = call.bytes_moved(phase) / (share * gpu.bytes_per_us())
    if flops := call.flops(phase):
        us += flops / (PEAK_SHARE * gpu.peak_flops_per_us(call.compute_dtype))
    return us + START_US * call.kernels, call.BANDWIDTH.width


Time = TypeVar("Time", float, NDArray[np.float64])


def joined_us(one: Time, other: Time, exponent: float) -> Time:
    """The p-norm of two times, for a large exponent the longer one. Neither may be negative, nor both 0."""
    both = one + other
    shares: Time = (one / both) ** exponent + (other / both) ** exponent
    total: Time = both * shares ** (1 / exponent)
    return total


FUSED_SHARE = 0.75
"""Share of the streaming bandwidth of a fused kernel: rows are gathered whole, as an embedding's are, and sums need no atomics
(Transformer Engine, triton/permutation.py); between GELU's share and the share of a forward permutation in several kernels."""


@formula_of(Permute)
def permute_us(call: Permute, phase: Phase, gpu: Gpu) -> tuple[float, float]:
    return _permutation_us(call, phase, gpu)


@formula_of(Unpermute)
def unpermute_us(call: Unpermute, phase: Phase, gpu: Gpu) -> tuple[float, float]:
    return _permutation_us(call, phase, gpu)


def _permutation_us(call: Permute | Unpermute, phase: Phase, gpu: Gpu) -> tuple[float, float]:
    if not call.fused:
        return memory_bound_us(call, phase, gpu)
    bytes_per_us = FUSED_SHARE * gpu.efficiency["elementwise"] * gpu.bytes_per_us()
    return START_US + call.bytes_moved(phase) / bytes_per_us, call.BANDWIDTH.width
