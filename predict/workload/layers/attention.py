"""Attention with grouped queries, over all earlier tokens or over those in a window."""

from __future__ import annotations

from predict.model.parts.attention import Attention, heads_on_rank, normed_heads
from predict.model.spec import LayerKind
from predict.rank.context_parallel import exchange_of_keys
from predict.rank.module import Module
from predict.rank.share import RankShare
from predict.rank.tensor_parallel import entering, leaving
from predict.workload.layers.core_attention import CORE, core_attention, rotary
from sampling.arithmetic.operator import Operator
from sampling.cells.matrices import products_on_rank
from sampling.operators.norm import RMSNorm


def modules(rank: RankShare, kind: LayerKind, attention: Attention) -> tuple[Module, ...]:
    model, tp = rank.model, rank.plan.tp
    heads, kv_heads = heads_on_rank(model, tp)
    products = products_on_rank(attention.matrices(model), tp)
    turned: list[tuple[Operator, float]] = []
    for own in (heads, kv_heads):
        if model.qk_norm:
            rows, width = normed_heads(model, rank.tokens, own)
            turned.append((RMSNorm(dtype=rank.dtype, tokens=rows, hidden=width), 1))
        if model.rope:
            turned += rotary(rank, own, model.rotary_dim or model.head_dim)
    window = model.window if kind.mixer == "sliding" else 0
    return (
        Module(name="qkv", works=((rank.gemm(*products["qkv"]), 1),), exchanges=entering(rank)),
        Module(name="rope", works=tuple(turned)),
        Module(
            name=CORE,
            works=core_attention(rank, heads, kv_heads, model.head_dim, window=window),
            exchanges=exchange_of_keys(rank, heads * model.head_dim, 2 * kv_heads * model.head_dim),
        ),
        Module(name="proj", works=((rank.gemm(*products["proj"]), 1),), exchanges=leaving(rank)),
    )
