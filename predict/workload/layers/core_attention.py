"""Attention itself, and the rotary embedding before it: what attention and latent attention have in common."""

from __future__ import annotations

from predict.workload.rank.module import Works
from predict.workload.rank.share import RankShare
from sampling.operators.attention import Attention
from sampling.operators.elementwise import RoPE
from sampling.operators.gemm import BatchedGemm
from sampling.operators.softmax import CausalSoftmax, MaskFill, Softmax
from sampling.operators.streaming import Dropout

CORE = "core_attn"


def rotary(rank: RankShare, heads: int, width: int) -> RoPE:
    batch = rank.run.batch
    return RoPE(dtype=rank.dtype, batch=batch.micro, seq_len=batch.seq_len // rank.plan.cp, heads=heads, head_dim=width)


def core_attention(
    rank: RankShare, heads: int, kv_heads: int, head_dim: int, *, window: int = 0, value_dim: int = 0
) -> Works:
    """Attention itself; a rank of cp does an even share of it."""
    batch, execution = rank.run.batch, rank.execution
    if execution.attention == "unfused":
        return _unfused(rank, heads, head_dim, value_dim or head_dim)
    attention = Attention(
        dtype=rank.dtype,
        batch=batch.micro,
        seq_len=batch.seq_len,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        causal=True,
        window=window if window < batch.seq_len else 0,
        value_dim=value_dim,
        kernel="" if execution.attention == "best" else execution.attention,
    )
    return ((attention, 1 / rank.plan.cp),)


def _unfused(rank: RankShare, heads: int, head_dim: int, value_dim: int) -> Works:
    """Two products with softmax, and dropout, between them (Megatron-LM's core attention)."""
    batch, dtype, share = rank.run.batch, rank.dtype, 1 / rank.plan.cp
    seq_len, matrices = batch.seq_len, batch.micro * heads
    scores = BatchedGemm(dtype=dtype, batch=matrices, m=seq_len, n=seq_len, k=head_dim, adds=True)
    values = BatchedGemm(dtype=dtype, batch=matrices, m=seq_len, n=value_dim, k=seq_len, adds=False)
    between = (CausalSoftmax,) if rank.execution.fuse_softmax else (MaskFill, Softmax)
    softmax = tuple((kind(dtype=dtype, matrices=matrices, seq_len=seq_len), share) for kind in between)
    dropped = ((Dropout(dtype=dtype, count=matrices * seq_len**2), share),) if rank.execution.dropout else ()
    return ((scores, share), *softmax, *dropped, (values, share))
