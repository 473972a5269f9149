"""Masking and softmax of attention scores in torch."""

from __future__ import annotations

from collections.abc import Callable

import torch

from sampling.operators.softmax import CausalSoftmax, MaskFill, Softmax
from sampling.torch_work.build import builds, compiled
from sampling.torch_work.workload import AutogradWorkload, autograd_workload


@builds(Softmax)
def softmax(call: Softmax, device: torch.device) -> AutogradWorkload:
    return autograd_workload(device, call.dtype, lambda scores: scores.softmax(dim=-1), inputs=[call.shape])


@builds(CausalSoftmax)
def causal_softmax(call: CausalSoftmax, device: torch.device) -> AutogradWorkload:
    return autograd_workload(device, call.dtype, softmax_of(device, call.seq_len, fused=True), inputs=[call.shape])


@builds(MaskFill)
def mask_fill(call: MaskFill, device: torch.device) -> AutogradWorkload:
    mask = causal_mask(device, call.seq_len)
    return autograd_workload(device, call.dtype, lambda scores: scores.masked_fill(mask, -1e4), inputs=[call.shape])


def softmax_of(device: torch.device, seq_len: int, *, fused: bool) -> Callable[[torch.Tensor], torch.Tensor]:
    """Causal softmax of scores [matrices, seq, seq]: scale, mask and softmax compiled into one, or two kernels."""
    mask = causal_mask(device, seq_len)

    def in_one(scores: torch.Tensor) -> torch.Tensor:
        return (scores * 0.125).masked_fill(mask, -torch.inf).softmax(dim=-1)

    def one_by_one(scores: torch.Tensor) -> torch.Tensor:
        return scores.masked_fill(mask, -1e4).softmax(dim=-1)

    return compiled(in_one) if fused else one_by_one


def causal_mask(device: torch.device, seq_len: int) -> torch.Tensor:
    """True [seq, seq] where the key comes after the query."""
    return torch.ones(seq_len, seq_len, dtype=torch.bool, device=device).triu(1)
