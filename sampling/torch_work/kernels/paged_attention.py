"""Attention over keys and values that lie in blocks of a cache, found through a table of blocks.

The keys of all sequences are gathered up to the longest table, and a mask hides what lies beyond each one's end.
Heads that share keys are rows of one product, so that keys are read once.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


def decode_mask(keys: Tensor, most: int) -> Tensor:
    """True [batch, 1, 1, most] where a sequence has the key."""
    place = torch.arange(most, device=keys.device)
    return (place < keys.unsqueeze(1))[:, None, None, :]


def chunk_mask(tokens: int, context: int, most: int, device: torch.device) -> Tensor:
    """True [tokens, most] where the token at `context` + row sees the key: its own and those before it."""
    place = torch.arange(most, device=device)
    own = torch.arange(context, context + tokens, device=device)
    return place <= own.unsqueeze(1)


def paged_decode(query: Tensor, keys: Tensor, values: Tensor, table: Tensor, mask: Tensor) -> Tensor:
    """One token each of a batch: query [batch, heads, d], caches [blocks, block, kv_heads, d], table [batch, blocks of each]."""
    batch, heads, size = query.shape
    key, value = (cache[table].flatten(1, 2).transpose(1, 2) for cache in (keys, values))
    kv_heads = key.shape[1]
    rows = query.view(batch, kv_heads, heads // kv_heads, size)
    return scaled_dot_product_attention(rows, key, value, attn_mask=mask).flatten(1, 2)


def paged_chunk(query: Tensor, keys: Tensor, values: Tensor, table: Tensor, mask: Tensor) -> Tensor:
    """Some tokens of one prompt: query [tokens, heads, d], table [blocks], mask [tokens, keys]."""
    key, value = (cache[table].flatten(0, 1).transpose(0, 1).unsqueeze(0) for cache in (keys, values))
    rows = query.transpose(0, 1).unsqueeze(0)
    shared = query.shape[1] != key.shape[1]
    mixed = scaled_dot_product_attention(rows, key, value, attn_mask=mask, enable_gqa=shared)
    return mixed[0].transpose(0, 1)
