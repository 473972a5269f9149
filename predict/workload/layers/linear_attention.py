"""Gated DeltaNet (Yang et al., arXiv 2412.06464): products, a short convolution, the recurrence, a gated norm."""

from __future__ import annotations

from predict.model.parts.linear_attention import LinearAttention
from predict.model.spec import LayerKind
from predict.rank.context_parallel import exchange_of_keys
from predict.rank.module import Module
from predict.rank.share import RankShare
from predict.rank.tensor_parallel import entering, leaving
from predict.workload.layers.core_attention import CORE
from sampling.cells.matrices import products_on_rank
from sampling.operators.linear_attention import GatedDelta
from sampling.operators.norm import RMSNorm
from sampling.operators.streaming import Stream


def modules(rank: RankShare, kind: LayerKind, linear: LinearAttention) -> tuple[Module, ...]:
    model, tp = rank.model, rank.plan.tp
    keys, values = linear.key_heads * linear.key_dim // tp, linear.value_heads * linear.value_dim // tp
    heads = linear.value_heads // tp
    products = products_on_rank(linear.matrices(model), tp)
    delta = GatedDelta(
        dtype=rank.dtype,
        batch=rank.run.batch.micro,
        seq_len=rank.run.batch.seq_len,
        heads=linear.key_heads // tp,
        value_heads=heads,
        head_dim=linear.key_dim,
        value_dim=linear.value_dim,
    )
    mixed = Stream(dtype=rank.dtype, size_bytes=2 * rank.item_bytes * rank.tokens * (2 * keys + values))
    gated = RMSNorm(dtype=rank.dtype, tokens=rank.tokens * heads, hidden=linear.value_dim)
    return (
        Module(
            name="qkv",
            works=((rank.gemm(*products["qkv"]), 1), (mixed, 1)),
            exchanges=entering(rank),
        ),
        Module(
            name=CORE, works=((delta, 1 / rank.plan.cp),), exchanges=exchange_of_keys(rank, values, 2 * keys + values)
        ),
        Module(name="proj", works=((gated, 1), (rank.gemm(*products["proj"]), 1)), exchanges=leaving(rank)),
    )
