"""A product per expert on a few streams, as Transformer Engine's GroupedLinear runs them: a fixed time for each beside its tiles."""

from __future__ import annotations

from predict.prices.kernels.products import BACKWARD_SHARE, MEMORY_SHARE, best_flops_per_us, overlapped_us, waves_us
from predict.prices.published_constants import FP8_EXPERT_KERNELS
from sampling.arithmetic.expert_rows import BALANCED
from sampling.call import Phase
from sampling.hardware.cluster import Gpu
from sampling.operators.experts import IN_GRAPH, GroupedGemm

SHARE, WEIGHT_SHARE = 0.95, 0.80
"""Best shares over that of a plain product: of products by rows, and of weight gradients, which add to fp32."""
EXPERT_US = 4.0
"""Time that each expert's product costs beside its tiles. This and the two shares are one fit to SimuMax's grouped products
(A100 PCIe and B200, bf16, 128 to 9,832 rows per expert): mean error 9 %, without bias."""
WIDTH = 0.25
"""Log half-width at 90 % on those products."""
QUANTISED_BYTES = 4
"""Bytes that quantising one 16-bit element moves: it is read, and written in fp8 by rows and, for the weight gradient, by columns
(Transformer Engine, GroupedLinear: the inputs in forward, the outputs' gradients in backward)."""


def per_expert_us(call: GroupedGemm, phase: Phase, gpu: Gpu) -> float:
    """Products of each expert's rows with its weight [n, k], after one pass that quantises the rows of all."""
    if phase == "forward":
        return _quantised_us(call, call.k, gpu) + _rowwise_us(call, call.n, call.k, gpu)
    us = 0.0
    if phase != "backward_weight":
        us += _quantised_us(call, call.n, gpu) + _rowwise_us(call, call.k, call.n, gpu, BACKWARD_SHARE)
    if phase != "backward_input":
        us += _weight_gradient_us(call, gpu)
    return us


def _rowwise_us(call: GroupedGemm, columns: int, inner: int, gpu: Gpu, slowdown: float = 1.0) -> float:
    busy = min(call.groups, call.rows)
    even = call.distribution == BALANCED
    rows = -(-call.rows // busy) if even else call.rows / busy
    speed = SHARE * best_flops_per_us(call.dtype, gpu)
    compute_us = slowdown * waves_us(rows, columns, inner, busy, speed, gpu, uneven=not even)
    return _starts_us(call, busy) + overlapped_us(compute_us, grouped_memory_us(call, busy, gpu))


def _weight_gradient_us(call: GroupedGemm, gpu: Gpu) -> float:
    busy = min(call.groups, call.rows)
    speed = WEIGHT_SHARE * best_flops_per_us(call.dtype, gpu)
    compute_us = BACKWARD_SHARE * waves_us(call.n, call.k, -(-call.rows // busy), busy, speed, gpu)
    return _starts_us(call, busy) + overlapped_us(compute_us, grouped_memory_us(call, busy, gpu))


def _starts_us(call: GroupedGemm, busy: int) -> float:
    kernels = FP8_EXPERT_KERNELS.value if call.dtype == "fp8" and call.kernel != IN_GRAPH else 1
    return EXPERT_US * kernels * busy


def _quantised_us(call: GroupedGemm, width: int, gpu: Gpu) -> float:
    if call.dtype != "fp8":
        return 0.0
    return QUANTISED_BYTES * call.rows * width / (MEMORY_SHARE * gpu.bytes_per_us())


def grouped_memory_us(call: GroupedGemm, busy: int, gpu: Gpu) -> float:
    """The time in which a grouped product's rows, and the weights of its busy experts, are moved."""
    moved = call.item_bytes * (call.rows * (call.k + call.n) + busy * call.n * call.k)
    return moved / (MEMORY_SHARE * gpu.bytes_per_us())
