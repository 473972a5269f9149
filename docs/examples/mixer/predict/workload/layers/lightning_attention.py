"""Lightning attention: products, the recurrence, a gated norm."""

from __future__ import annotations

from predict.model.parts.lightning_attention import LightningAttention
from predict.model.spec import LayerKind
from predict.rank.context_parallel import exchange_of_keys
from predict.rank.module import Module
from predict.rank.share import RankShare
from predict.rank.tensor_parallel import entering, leaving
from predict.workload.layers.core_attention import CORE
from sampling.cells.matrices import products_on_rank
from sampling.operators.elementwise import SwiGLU
from sampling.operators.lightning_attention import LightningRecurrence
from sampling.operators.streaming import Stream


def modules(rank: RankShare, kind: LayerKind, lightning: LightningAttention) -> tuple[Module, ...]:
    products = products_on_rank(lightning.matrices(rank.model), rank.plan.tp)
    heads, head_dim = rank.model.heads // rank.plan.tp, rank.model.head_dim
    width = heads * head_dim
    recurrence = LightningRecurrence(
        dtype=rank.dtype,
        batch=rank.run.batch.micro,
        seq_len=rank.run.batch.seq_len,
        heads=heads,
        head_dim=head_dim,
        block=lightning.block,
    )
    activation = Stream(dtype=rank.dtype, size_bytes=2 * rank.item_bytes * rank.tokens * 3 * width)
    gate = SwiGLU(dtype=rank.dtype, tokens=rank.tokens, width=width)
    return (
        Module(name="qkv", works=((rank.gemm(*products["qkv"]), 1), (activation, 1)), exchanges=entering(rank)),
        Module(name=CORE, works=((recurrence, 1 / rank.plan.cp),), exchanges=exchange_of_keys(rank, width, 2 * width)),
        Module(
            name="proj",
            works=((rank.norm(width, rows=rank.tokens), 1), (gate, 1), (rank.gemm(*products["proj"]), 1)),
            exchanges=leaving(rank),
        ),
    )
