"""Permutation of tokens to and from rows sorted by expert: one fused kernel, or torch's several."""

from __future__ import annotations

from predict.prices.kernels.formulas import formula_of
from predict.prices.kernels.memory_bound import START_US, memory_bound_us
from sampling.call import Phase
from sampling.hardware.cluster import Gpu
from sampling.operators.routing import Permute, Unpermute

FUSED_SHARE = 0.75
"""Share of the streaming bandwidth of a fused kernel: rows are gathered whole, as an embedding's are, and sums need no atomics
(Transformer Engine, triton/permutation.py); between GELU's share and that of a forward permutation in several kernels."""


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
