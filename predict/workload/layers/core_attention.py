"""Attention itself, and the rotary embedding before it: what attention and latent attention have in common."""

from __future__ import annotations

from dataclasses import replace

from predict.rank.module import Works
from predict.rank.share import RankShare
from predict.run.training_run import TrainingRun
from sampling.arithmetic.operator import Operator
from sampling.operators.attention import Attention
from sampling.operators.elementwise import RoPE
from sampling.operators.gemm import BatchedGemm
from sampling.operators.softmax import CausalSoftmax, MaskFill, Softmax
from sampling.operators.streaming import Dropout, Stream

CORE = "core_attn"


UNFUSED_PASSES = 5
"""Tensors that a rotary embedding of torch's operators moves beyond a fused one: 10 forward and 15 backward, of the 7 and 8 that the fused
one's share of the bandwidth stands for (Megatron-LM, rope_utils.py, `_apply_rotary_pos_emb_bshd`); their mean."""


def rotary(rank: RankShare, heads: int, width: int) -> Works:
    """The rotary embedding; torch's own operators where it scales what it turns."""
    batch, dtype = rank.run.batch, rank.dtype
    turned = RoPE(dtype=dtype, batch=batch.micro, seq_len=batch.seq_len // rank.plan.cp, heads=heads, head_dim=width)
    if not rank.model.scaled_rope or rank.execution.elementwise == "eager":
        return ((turned, 1),)
    return (turned, 1), (Stream(dtype=dtype, size_bytes=UNFUSED_PASSES * rank.item_bytes * turned.elements), 1)


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
        window=_window(window, batch.seq_len),
        value_dim=value_dim,
        kernel="" if execution.attention == "best" else execution.attention,
    )
    return tuple((call, share / rank.plan.cp) for call, share in attended(rank.run, attention, window=window))


def attended(run: TrainingRun, whole: Attention, *, window: int = 0) -> tuple[tuple[Attention, float], ...]:
    """Attention of a microbatch's rows as that of its real sequences, each call by the share in which it counts."""
    return tuple(
        (replace(whole, batch=count, seq_len=length, window=_window(window, length)), share)
        for count, length, share in _sequences_seen(run)
    )


def _sequences_seen(run: TrainingRun) -> tuple[tuple[int, int, float], ...]:
    """Number and length of the sequences that attention of a microbatch sees: for each group of like lengths as many as have the
    microbatch's tokens, and the share of them that has the group's squares."""
    micro, row_tokens = run.batch.micro, run.batch.seq_len
    found = []
    for like in run.attended:
        count = max(1, round(micro * row_tokens / like.length))
        found.append((count, like.length, micro * like.squares / (count * like.length**2)))
    return tuple(found) or ((micro, row_tokens, 1.0),)


def _window(window: int, seq_len: int) -> int:
    """The window where it bounds what a query sees; 0 where it does not."""
    return window if window < seq_len else 0


def _unfused(rank: RankShare, heads: int, head_dim: int, value_dim: int) -> Works:
    """Two products with softmax, and dropout, between them (Megatron-LM's core attention)."""
    return tuple(
        (call, share / rank.plan.cp)
        for count, length, share in _sequences_seen(rank.run)
        for call in _unfused_calls(rank, count * heads, length, head_dim, value_dim)
    )


def _unfused_calls(rank: RankShare, matrices: int, seq_len: int, head_dim: int, value_dim: int) -> tuple[Operator, ...]:
    dtype, execution = rank.dtype, rank.execution
    scores = BatchedGemm(dtype=dtype, batch=matrices, m=seq_len, n=seq_len, k=head_dim, adds=True)
    values = BatchedGemm(dtype=dtype, batch=matrices, m=seq_len, n=value_dim, k=seq_len, adds=False)
    between = (CausalSoftmax,) if execution.fuse_softmax else (MaskFill, Softmax)
    softmax = tuple(kind(dtype=dtype, matrices=matrices, seq_len=seq_len) for kind in between)
    dropped = (Dropout(dtype=dtype, count=matrices * seq_len**2),) if execution.dropout else ()
    return (scores, *softmax, *dropped, values)
