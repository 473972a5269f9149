"""Attention in torch as two products with a softmax between."""

from __future__ import annotations

import torch

from sampling.operators.unfused_attention import UnfusedAttention
from sampling.torch_work.build import builds, products_in
from sampling.torch_work.operators.memory_bound import softmax_of
from sampling.torch_work.workload import AutogradWorkload, Copy, leaf


@builds(UnfusedAttention)
def unfused_attention(call: UnfusedAttention, device: torch.device) -> AutogradWorkload:
    softmax = softmax_of(device, call.seq_len, fused=call.fused_softmax)

    def copy() -> Copy:
        shape = (device, call.dtype, call.matrices, call.seq_len, call.head_dim)
        query, key, value = leaf(*shape), leaf(*shape), leaf(*shape)
        onto = torch.empty(call.matrices, call.seq_len, call.seq_len, device=device, dtype=query.dtype)

        def forward() -> torch.Tensor:
            scores = torch.baddbmm(onto, query, key.transpose(1, 2), beta=0.0, alpha=call.head_dim**-0.5)
            return torch.bmm(softmax(scores), value)

        return Copy(forward=forward, inputs=[query, key, value])

    return AutogradWorkload(copy, context=products_in(call.dtype))
