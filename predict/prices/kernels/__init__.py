"""Times of GPU kernels where nothing was sampled: priors by kind, dtype, architecture and shape.

The constants are few, each fitted once to published samples of all GPUs together and cited at its definition; the best that
a device reaches is its own `efficiency` in `configs/hardware/<name>.yml`. The samples are AIConfigurator (A100, H100, H200;
forward), "Estimating training time" (A100, GH200; forward and backward) and SimuMax (A100 PCIe, B200).
"""

from predict.interval import width_of_unmeasured_kernel
from predict.prices.kernels.formulas import FORMULAS
from predict.prices.kernels.memory_bound import memory_bound_us
from sampling.additions import modules_of
from sampling.arithmetic.operator import UNKNOWN, Operator
from sampling.call import Phase
from sampling.hardware.cluster import Gpu

MEASURED_ARCHITECTURES = ("ampere", "hopper", "blackwell")
"""Architectures of which kernels were sampled in public; whole runs may be known of others (`predict.step.composition_error.PUBLISHED`)."""
UNMEASURED_WIDTH = 0.2
"""Addition to the log half-width, of kernels and of what is made of them, on an architecture without samples: the best shares of the
three with samples range over a factor of 1.7, and one that is off moves all kernels the same way."""


def operator_us(call: Operator, phase: Phase, gpu: Gpu) -> tuple[float, float]:
    """Median µs of one rank's kernels and the 90 % half-width of its logarithm.

    A composite is the sum of its operators, whose errors are assumed to be fully correlated; its collectives are omitted.
    """
    parts = call.parts(phase)
    if parts:
        own = [
            (part.count, operator_us(part.call, part.phase, gpu)) for part in parts if isinstance(part.call, Operator)
        ]
        total_us = sum(count * us for count, (us, _) in own)
        weighted = sum(count * us * width for count, (us, width) in own)
        return total_us, weighted / total_us if total_us else UNKNOWN
    modules_of(__name__)
    median_us, width = FORMULAS.get(type(call), memory_bound_us)(call, phase, gpu)
    if gpu.architecture in MEASURED_ARCHITECTURES:
        return median_us, width
    return median_us, width_of_unmeasured_kernel(width, UNMEASURED_WIDTH)
