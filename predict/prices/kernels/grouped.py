"""Grouped products of a mixture's experts: tiles of each expert's rows, and the weights of every expert that has rows."""

from __future__ import annotations

from predict.prices.kernels.formulas import formula_of
from predict.prices.kernels.per_expert import WIDTH as PER_EXPERT_WIDTH
from predict.prices.kernels.per_expert import grouped_memory_us, per_expert_us
from predict.prices.kernels.products import (
    BACKWARD_SHARE,
    best_flops_per_us,
    overlapped_us,
    stack_width,
    waves_us,
)
from sampling.arithmetic.expert_rows import BALANCED
from sampling.call import Phase
from sampling.hardware.cluster import Gpu
from sampling.operators.experts import IN_GRAPH, PER_EXPERT, UNTUNED, GroupedGemm

SHARE = 0.66
"""Best share of a grouped product over that of a plain one: fitted to AIConfigurator's fused experts with 8 rows per
expert and more (vLLM, TensorRT-LLM; A100, H100, H200), whose permutation is assumed to be three passes over the rows."""
START_US = 23.0
"""Start of one grouped product, including making its list of problems. Fitted together with SHARE."""
UNTUNED_START_US = 74.0
UNTUNED_SHARE = 0.735
"""The same of a fused kernel without tiles tuned for its shape, and its share of the bandwidth: Mixtral's whole experts on H100 over 1 to
8 expert-parallel ranks (AIConfigurator, vLLM 0.14), 1,290 to 293 µs of 64 tokens."""
WIDTH = 0.6
"""Log half-width at 90 %: 0.5–0.7 by kernel on those tables (1.0 for TensorRT-LLM where a few experts have 1k rows or
more), 0.5 on SimuMax; whole runs differ by 1.28× between containers."""


@formula_of(GroupedGemm)
def grouped_us(call: GroupedGemm, phase: Phase, gpu: Gpu) -> tuple[float, float]:
    """One product per expert, of its rows and its weight [n, k]; the weight gradient is [n, rows]·[rows, k]."""
    if call.kernel == UNTUNED and phase == "forward":
        memory_us = call.bytes_moved(phase) / (UNTUNED_SHARE * gpu.bytes_per_us())
        compute_us = _compute_us(call, call.n, call.k, min(call.groups, call.rows), gpu)
        return UNTUNED_START_US + overlapped_us(compute_us, memory_us), WIDTH + stack_width(call.dtype, gpu)
    if call.kernel in (PER_EXPERT, IN_GRAPH):
        return per_expert_us(call, phase, gpu), PER_EXPERT_WIDTH + stack_width(call.dtype, gpu)
    busy = min(call.groups, call.rows)
    if phase == "forward":
        us = _rowwise_us(call, call.n, call.k, busy, gpu)
        return us, WIDTH + stack_width(call.dtype, gpu)
    us = 0.0
    if phase != "backward_weight":
        us += _rowwise_us(call, call.k, call.n, busy, gpu, BACKWARD_SHARE)
    if phase != "backward_input":
        us += _weight_gradient_us(call, busy, gpu)
    return us, WIDTH + stack_width(call.dtype, gpu)


def _rowwise_us(call: GroupedGemm, columns: int, inner: int, busy: int, gpu: Gpu, slowdown: float = 1.0) -> float:
    compute_us = slowdown * _compute_us(call, columns, inner, busy, gpu)
    return START_US + overlapped_us(compute_us, grouped_memory_us(call, busy, gpu))


def _compute_us(call: GroupedGemm, columns: int, inner: int, busy: int, gpu: Gpu) -> float:
    even = call.distribution == BALANCED
    rows = -(-call.rows // busy) if even else call.rows / busy
    return waves_us(rows, columns, inner, busy, SHARE * best_flops_per_us(call.dtype, gpu), gpu, uneven=not even)


def _weight_gradient_us(call: GroupedGemm, busy: int, gpu: Gpu) -> float:
    speed = SHARE * best_flops_per_us(call.dtype, gpu)
    rows = -(-call.rows // busy)
    compute_us = BACKWARD_SHARE * waves_us(call.n, call.k, rows, busy, speed, gpu)
    return START_US + overlapped_us(compute_us, grouped_memory_us(call, busy, gpu))
