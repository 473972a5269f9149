"""Attention over a cache in torch: one query per sequence, the keys in one piece or in blocks."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn.functional import scaled_dot_product_attention

from sampling.arithmetic.operator import COPIES
from sampling.errors import SkippedError
from sampling.operators.decode_attention import DecodeAttention
from sampling.torch_work.build import builds
from sampling.torch_work.kernels.attention import decode_mask, paged_decode
from sampling.torch_work.workload import AutogradWorkload, PhaseWorkload, autograd_workload, leaf


@builds(DecodeAttention)
def decode_attention(call: DecodeAttention, device: torch.device) -> AutogradWorkload | PhaseWorkload:
    def attend(query: torch.Tensor, key: torch.Tensor, *apart: torch.Tensor) -> torch.Tensor:
        value = apart[0] if apart else key[..., : call.value_dim]
        return scaled_dot_product_attention(query, key, value, enable_gqa=call.heads != call.kv_heads)

    if call.kernel:
        raise SkippedError(f"{call.NAME}: kernel {call.kernel!r} is a serving engine's own, which torch does not have")
    if call.block:
        return PhaseWorkload([{"forward": _over_blocks(call, device)} for _ in range(COPIES)])
    query = (call.batch, call.heads, 1, call.head_dim)
    cached = (call.batch, call.kv_heads, call.seen, call.head_dim)
    return autograd_workload(
        device, call.dtype, attend, inputs=[query, cached] if call.values_in_keys else [query, cached, cached]
    )


def _over_blocks(call: DecodeAttention, device: torch.device) -> Callable[[], torch.Tensor]:
    """The attention of one layer, in whose cache the blocks of the sequences lie in no order."""
    each = -(-call.seen // call.block)
    blocks = call.batch * each
    cache = (blocks, call.block, call.kv_heads, call.head_dim)
    keys = leaf(device, call.dtype, *cache).detach()
    values = keys[..., : call.value_dim] if call.values_in_keys else leaf(device, call.dtype, *cache).detach()
    query = leaf(device, call.dtype, call.batch, call.heads, call.head_dim).detach()
    table = torch.randperm(blocks, device=device).view(call.batch, each)
    mask = decode_mask(torch.full((call.batch,), call.seen, device=device), each * call.block)

    def attend() -> torch.Tensor:
        with torch.inference_mode():
            return paged_decode(query, keys, values, table, mask)

    return attend
