"""Attention with grouped queries."""

from __future__ import annotations

from predict.memory.components.core_attention import (
    Heads,
    core_attention,
    looked_up_rotary_bytes,
    projection,
    rotary_bytes,
)
from predict.memory.components.norms import keeps_its_input, norm_bytes, normed_input
from predict.memory.components.saved_tensors import Saved, SavedTensors
from predict.memory.components.sizes import Sizes
from predict.model.parts.attention import Attention, heads_on_rank, normed_heads


def saved_tensors(sizes: Sizes, attention: Attention) -> Saved:
    """T[e·H + e(2A·d + 2G·d) + 4A] bytes with flash attention (Dao, arXiv 2307.08691: queries, keys, values, output and the
    log-sum-exp), byte-equal to torch's for grouped queries without a repeat; heads per rank."""
    model, item, tokens = sizes.model, sizes.item, sizes.tokens
    heads, kv_heads = heads_on_rank(model, sizes.tp)
    queries, keys = item * tokens * heads * model.head_dim, item * tokens * kv_heads * model.head_dim
    shape = Heads(heads=heads, kv_heads=kv_heads, head_dim=model.head_dim, queries=queries, keys=keys, values=keys)
    # the product of the gate and attention's output, and the gate's sigmoid unless the backward computes it again
    gate = queries * (1 if sizes.profile.compiled else 2) if model.query_gate else 0.0
    return (
        *normed_input(sizes, "qkv", is_module=False),
        SavedTensors(
            component="qkv",
            kept=_normed_heads(sizes, heads, kv_heads) + (queries + keys if sizes.profile.keeps_joint_qkv else 0.0),
            in_forward=queries + keys,
        ),
        SavedTensors(component="positions", kept=looked_up_rotary_bytes(sizes)),
        SavedTensors(component="rope", kept=rotary_bytes(sizes), in_forward=queries + keys),
        *core_attention(sizes, shape),
        projection(sizes, queries, gate=gate, partial_rotary=0 < model.rotary_dim < model.head_dim),
    )


def _normed_heads(sizes: Sizes, heads: int, kv_heads: int) -> float:
    """The norms of queries and keys. One that keeps its input keeps the gate with the queries, as one storage."""
    model, tokens = sizes.model, sizes.tokens
    if not model.qk_norm:
        return 0.0
    kept = sum(norm_bytes(sizes, *normed_heads(model, tokens, count)) for count in (heads, kv_heads))
    with_gate = model.query_gate and keeps_its_input(sizes) and not sizes.profile.megatron
    return kept + (sizes.item * tokens * heads * model.head_dim if with_gate else 0.0)
