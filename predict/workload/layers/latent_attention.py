"""Multi-head latent attention (DeepSeek-AI, arXiv 2405.04434)."""

from __future__ import annotations

from predict.model.parts.latent_attention import LatentAttention
from predict.model.spec import LayerKind
from predict.rank.context_parallel import exchange_of_keys
from predict.rank.module import Module, Works
from predict.rank.share import RankShare
from predict.rank.tensor_parallel import entering, leaving
from predict.workload.layers.core_attention import CORE, core_attention, rotary
from sampling.cells.matrices import products_on_rank
from sampling.operators.streaming import Stream


def modules(rank: RankShare, kind: LayerKind, latent: LatentAttention) -> tuple[Module, ...]:
    """The down-projections are whole on every rank of tp, and read the rows of its share of the sequence."""
    model, tp = rank.model, rank.plan.tp
    heads, head_dim = model.heads // tp, latent.query_dim
    products = products_on_rank(latent.matrices(model), tp)
    down: Works = ((rank.gemm(*products["kv_down"], m=rank.rows), 1),)
    up: Works = ((rank.norm(latent.kv_rank), 1), (rank.gemm(*products["kv_up"]), 1))
    queries = rank.gemm(*products["q_up"])
    if latent.q_rank:
        down += ((rank.gemm(*products["q_down"], m=rank.rows), 1),)
        up += ((rank.norm(latent.q_rank), 1), (queries, 1))
    else:
        down += ((queries, 1),)
    # what is compressed on each rank's rows comes together before the ways up
    compressed = (latent.q_rank or model.hidden) + latent.kv_rank + latent.rope_dim
    turned = tuple(work for own in (heads, 1) for work in rotary(rank, own, latent.rope_dim))
    # keys are put together of their two parts for every head
    joined = Stream(dtype=rank.dtype, size_bytes=2 * rank.item_bytes * rank.tokens * heads * head_dim)
    return (
        Module(name="qkv_down", works=down),
        Module(name="mla_up_proj", works=up, exchanges=entering(rank, compressed)),
        Module(name="rope", works=(*turned, (joined, 1))),
        Module(
            name=CORE,
            works=core_attention(rank, heads, heads, head_dim, value_dim=latent.value_dim),
            exchanges=exchange_of_keys(rank, heads * head_dim, heads * (head_dim + latent.value_dim)),
        ),
        Module(name="proj", works=((rank.gemm(*products["proj"]), 1),), exchanges=leaving(rank)),
    )
