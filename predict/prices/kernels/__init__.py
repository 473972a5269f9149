"""What a GPU kernel takes where nothing was sampled: priors by kind, dtype, architecture and shape.

Few named constants, each fitted once to published samples of all GPUs together and cited where it stands; what a device
reaches at best is its own `efficiency` in `configs/hardware/<name>.yml`. The samples: AIConfigurator (A100, H100, H200;
forward), "Estimating training time" (A100, GH200; forward and backward) and SimuMax (A100 PCIe, B200).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from predict.prices.kernels.attention import attention_us, gated_delta_us
from predict.prices.kernels.grouped import grouped_us
from predict.prices.kernels.memory import SHARES, memory_us
from predict.prices.kernels.products import batched_us, gemm_us
from sampling.arithmetic.operator import Operator
from sampling.call import Phase
from sampling.hardware.cluster import Cluster, Gpu, Link
from sampling.operators.attention import Attention
from sampling.operators.experts import GroupedGemm
from sampling.operators.gemm import BatchedGemm, Gemm
from sampling.operators.linear_attention import GatedDelta

__all__ = ["operator_us"]

MEASURED_ARCHITECTURES = ("ampere", "hopper", "blackwell")
UNMEASURED_WIDTH = 0.2
"""Added to the log half-width where no sample of the architecture was seen: the best shares of the three that were
range over a factor of 1.7."""
UNKNOWN_WIDTH = math.log(2.0)
"""Of an operator without a formula: on published tables shares of peak range over 0.3–0.9 about a flat 0.6."""


def operator_us(call: Operator, phase: Phase, gpu: Gpu) -> tuple[float, float]:
    """Median µs of one rank's kernels and the 90 % half-width of its logarithm.

    A composite is the sum of its operators, whose errors are taken to move together; its collectives are left out.
    """
    parts = call.parts(phase)
    if parts:
        own = [
            (part.count, operator_us(part.call, part.phase, gpu)) for part in parts if isinstance(part.call, Operator)
        ]
        total_us = sum(count * us for count, (us, _) in own)
        weighted = sum(count * us * width for count, (us, width) in own)
        return total_us, weighted / total_us if total_us else UNKNOWN_WIDTH
    median_us, width = _atomic(call, phase, gpu)
    return median_us, width if gpu.architecture in MEASURED_ARCHITECTURES else width + UNMEASURED_WIDTH


def _atomic(call: Operator, phase: Phase, gpu: Gpu) -> tuple[float, float]:
    formula = FORMULAS.get(type(call)) or (memory_us if call.NAME in SHARES else _roofline)
    return formula(call, phase, gpu)


def _roofline(call: Operator, phase: Phase, gpu: Gpu) -> tuple[float, float]:
    """The slowest resource of `call.terms` at the device's stated share of it."""
    nowhere = Link(latency_us=0.0, gb_per_s=1.0)
    alone = Cluster(gpu=gpu, intra_node=nowhere, inter_node=nowhere, nodes=1, gpus_per_node=1, profile="")
    share = gpu.efficiency
    slowest_us = 0.0
    for name, value in call.terms(phase, alone).items():
        kind = "elementwise" if name.endswith("_memory") else name.removesuffix("_compute")
        slowest_us = max(slowest_us, value / share.get(kind, share["elementwise"]))
    return slowest_us, UNKNOWN_WIDTH


FORMULAS: Mapping[type[Operator], Callable[[Any, Phase, Gpu], tuple[float, float]]] = {
    Gemm: gemm_us,
    BatchedGemm: batched_us,
    GroupedGemm: grouped_us,
    Attention: attention_us,
    GatedDelta: gated_delta_us,
}
"""Of the kinds that are more than their traffic."""
