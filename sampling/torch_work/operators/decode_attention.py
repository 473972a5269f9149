"""Attention over a cache in torch: one query per sequence."""

from __future__ import annotations

import torch
from torch.nn.functional import scaled_dot_product_attention

from sampling.errors import SkippedError
from sampling.operators.decode_attention import DecodeAttention
from sampling.torch_work.build import builds
from sampling.torch_work.workload import AutogradWorkload, autograd_workload


@builds(DecodeAttention)
def decode_attention(call: DecodeAttention, device: torch.device) -> AutogradWorkload:
    def attend(query: torch.Tensor, key: torch.Tensor, *apart: torch.Tensor) -> torch.Tensor:
        value = apart[0] if apart else key[..., : call.value_dim]
        return scaled_dot_product_attention(query, key, value, enable_gqa=call.heads != call.kv_heads)

    if call.kernel:
        raise SkippedError(f"{call.NAME}: kernel {call.kernel!r} is a serving engine's own, which torch does not have")
    query = (call.batch, call.heads, 1, call.head_dim)
    cached = (call.batch, call.kv_heads, call.seen, call.head_dim)
    return autograd_workload(
        device, call.dtype, attend, inputs=[query, cached] if call.values_in_keys else [query, cached, cached]
    )
