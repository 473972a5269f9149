"""How tokens of a layer meet: attention, latent attention, linear attention."""

from __future__ import annotations

from predict.model.layer_kinds import LayerKind
from predict.model.parts.attention import heads_on_rank
from predict.model.parts.latent_attention import LatentAttention
from predict.model.parts.linear_attention import LinearAttention
from predict.workload.rank.context_parallel import exchange_of_keys
from predict.workload.rank.module import Module, Works
from predict.workload.rank.share import RankShare
from predict.workload.rank.tensor_parallel import entering, leaving
from sampling.cells.matrices import products_on_rank
from sampling.operators.attention import Attention
from sampling.operators.elementwise import RoPE
from sampling.operators.gemm import BatchedGemm
from sampling.operators.linear_attention import GatedDelta
from sampling.operators.norm import RMSNorm
from sampling.operators.softmax import CausalSoftmax, MaskFill, Softmax
from sampling.operators.streaming import Dropout, Stream

CORE = "core_attn"


def mixer_modules(rank: RankShare, kind: LayerKind) -> tuple[Module, ...]:
    """From the layer's input to what is added to it."""
    norm = Module(name="layernorm", works=((rank.norm(), 1),))
    if kind.mixer == "linear" and rank.model.linear:
        return (norm, *_linear(rank, rank.model.linear))
    if rank.model.latent:
        return (norm, *_latent(rank, rank.model.latent))
    return (norm, *_attention(rank, kind))


def _attention(rank: RankShare, kind: LayerKind) -> tuple[Module, ...]:
    model, tp = rank.model, rank.plan.tp
    heads, kv_heads = heads_on_rank(model, tp)
    products = products_on_rank(model.mixer(kind).matrices(model), tp)
    turned: list[tuple[RoPE | RMSNorm, float]] = []
    for own in (heads, kv_heads):
        if model.qk_norm:
            turned.append((RMSNorm(dtype=rank.dtype, tokens=rank.tokens * own, hidden=model.head_dim), 1))
        if model.rope:
            turned.append((_rotary(rank, own, model.rotary_dim or model.head_dim), 1))
    window = model.window if kind.mixer == "sliding" else 0
    return (
        Module(name="qkv", works=((rank.gemm(*products["qkv"]), 1),), exchanges=entering(rank)),
        Module(name="rope", works=tuple(turned)),
        Module(
            name=CORE,
            works=_core(rank, heads, kv_heads, model.head_dim, window=window),
            exchanges=exchange_of_keys(rank, heads * model.head_dim, 2 * kv_heads * model.head_dim),
        ),
        Module(name="proj", works=((rank.gemm(*products["proj"]), 1),), exchanges=leaving(rank)),
        Module(name="residual", works=rank.residual()),
    )


def _latent(rank: RankShare, latent: LatentAttention) -> tuple[Module, ...]:
    """Multi-head latent attention (DeepSeek-AI, arXiv 2405.04434). The ways down are whole on every rank of tp."""
    model, tp = rank.model, rank.plan.tp
    heads, head_dim = model.heads // tp, latent.nope_dim + latent.rope_dim
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
    turned = tuple((_rotary(rank, own, latent.rope_dim), 1) for own in (heads, 1))
    # keys are put together of their two parts for every head
    joined = Stream(dtype=rank.dtype, size_bytes=2 * rank.item_bytes * rank.tokens * heads * head_dim)
    return (
        Module(name="qkv_down", works=down),
        Module(name="mla_up_proj", works=up, exchanges=entering(rank, compressed)),
        Module(name="rope", works=(*turned, (joined, 1))),
        Module(
            name=CORE,
            works=_core(rank, heads, heads, head_dim, value_dim=latent.value_dim),
            exchanges=exchange_of_keys(rank, heads * head_dim, heads * (head_dim + latent.value_dim)),
        ),
        Module(name="proj", works=((rank.gemm(*products["proj"]), 1),), exchanges=leaving(rank)),
        Module(name="residual", works=rank.residual()),
    )


def _linear(rank: RankShare, linear: LinearAttention) -> tuple[Module, ...]:
    """Gated DeltaNet (Yang et al., arXiv 2412.06464): products, a short convolution, the recurrence, a gated norm."""
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
        Module(name="residual", works=rank.residual()),
    )


def _rotary(rank: RankShare, heads: int, width: int) -> RoPE:
    batch = rank.run.batch
    return RoPE(dtype=rank.dtype, batch=batch.micro, seq_len=batch.seq_len // rank.plan.cp, heads=heads, head_dim=width)


def _core(rank: RankShare, heads: int, kv_heads: int, head_dim: int, *, window: int = 0, value_dim: int = 0) -> Works:
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
    fused = rank.execution.elementwise == "fused"
    between = (CausalSoftmax,) if fused else (MaskFill, Softmax)
    softmax = tuple((kind(dtype=dtype, matrices=matrices, seq_len=seq_len), share) for kind in between)
    dropped = ((Dropout(dtype=dtype, count=matrices * seq_len**2), share),) if rank.execution.dropout else ()
    return ((scores, share), *softmax, *dropped, (values, share))
