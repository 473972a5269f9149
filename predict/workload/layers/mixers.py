"""How tokens of a layer meet: attention, latent attention, linear attention."""

from __future__ import annotations

from predict.model.layer_kinds import LayerKind
from predict.model.parts.attention import heads_on_rank
from predict.model.parts.latent_attention import LatentAttention
from predict.model.parts.linear_attention import LinearAttention
from predict.workload.layers.context_parallel import exchange_of_keys
from predict.workload.layers.local import Local
from predict.workload.layers.module import Module, Works
from predict.workload.layers.tensor_parallel import entering, leaving
from sampling.cells.matrices import products_on_rank
from sampling.operators.attention import Attention
from sampling.operators.elementwise import RoPE
from sampling.operators.gemm import BatchedGemm
from sampling.operators.linear_attention import GatedDelta
from sampling.operators.norm import RMSNorm
from sampling.operators.softmax import CausalSoftmax, MaskFill, Softmax
from sampling.operators.streaming import Dropout, Stream

CORE = "core_attn"


def mixer_modules(local: Local, kind: LayerKind) -> tuple[Module, ...]:
    """From the layer's input to what is added to it."""
    norm = Module(name="layernorm", works=((local.norm(), 1),))
    if kind.mixer == "linear" and local.model.linear:
        return (norm, *_linear(local, local.model.linear))
    if local.model.latent:
        return (norm, *_latent(local, local.model.latent))
    return (norm, *_attention(local, kind))


def _attention(local: Local, kind: LayerKind) -> tuple[Module, ...]:
    model, tp = local.model, local.plan.tp
    heads, kv_heads = heads_on_rank(model, tp)
    products = products_on_rank(model.mixer(kind).matrices(model), tp)
    turned: list[tuple[RoPE | RMSNorm, float]] = []
    for own in (heads, kv_heads):
        if model.qk_norm:
            turned.append((RMSNorm(dtype=local.dtype, tokens=local.tokens * own, hidden=model.head_dim), 1))
        if model.rope:
            turned.append((_rotary(local, own, model.rotary_dim or model.head_dim), 1))
    window = model.window if kind.mixer == "sliding" else 0
    return (
        Module(name="qkv", works=((local.gemm(*products["qkv"]), 1),), exchanges=entering(local)),
        Module(name="rope", works=tuple(turned)),
        Module(
            name=CORE,
            works=_core(local, heads, kv_heads, model.head_dim, window=window),
            exchanges=exchange_of_keys(local, heads * model.head_dim, 2 * kv_heads * model.head_dim),
        ),
        Module(name="proj", works=((local.gemm(*products["proj"]), 1),), exchanges=leaving(local)),
        Module(name="residual", works=local.residual()),
    )


def _latent(local: Local, latent: LatentAttention) -> tuple[Module, ...]:
    """Multi-head latent attention (DeepSeek-AI, arXiv 2405.04434). The ways down are whole on every rank of tp."""
    model, tp = local.model, local.plan.tp
    heads, head_dim = model.heads // tp, latent.nope_dim + latent.rope_dim
    products = products_on_rank(latent.matrices(model), tp)
    down: Works = ((local.gemm(*products["kv_down"], m=local.rows), 1),)
    up: Works = ((local.norm(latent.kv_rank), 1), (local.gemm(*products["kv_up"]), 1))
    queries = local.gemm(*products["q_up"])
    if latent.q_rank:
        down += ((local.gemm(*products["q_down"], m=local.rows), 1),)
        up += ((local.norm(latent.q_rank), 1), (queries, 1))
    else:
        down += ((queries, 1),)
    # what is compressed on each rank's rows comes together before the ways up
    compressed = (latent.q_rank or model.hidden) + latent.kv_rank + latent.rope_dim
    turned = tuple((_rotary(local, own, latent.rope_dim), 1) for own in (heads, 1))
    # keys are put together of their two parts for every head
    joined = Stream(dtype=local.dtype, size_bytes=2 * local.item_bytes * local.tokens * heads * head_dim)
    return (
        Module(name="qkv_down", works=down),
        Module(name="mla_up_proj", works=up, exchanges=entering(local, compressed)),
        Module(name="rope", works=(*turned, (joined, 1))),
        Module(
            name=CORE,
            works=_core(local, heads, heads, head_dim, value_dim=latent.value_dim),
            exchanges=exchange_of_keys(local, heads * head_dim, heads * (head_dim + latent.value_dim)),
        ),
        Module(name="proj", works=((local.gemm(*products["proj"]), 1),), exchanges=leaving(local)),
        Module(name="residual", works=local.residual()),
    )


def _linear(local: Local, linear: LinearAttention) -> tuple[Module, ...]:
    """Gated DeltaNet (Yang et al., arXiv 2412.06464): products, a short convolution, the recurrence, a gated norm."""
    model, tp = local.model, local.plan.tp
    keys, values = linear.key_heads * linear.key_dim // tp, linear.value_heads * linear.value_dim // tp
    heads = linear.value_heads // tp
    products = products_on_rank(linear.matrices(model), tp)
    delta = GatedDelta(
        dtype=local.dtype,
        batch=local.run.batch.micro,
        seq_len=local.run.batch.seq_len,
        heads=linear.key_heads // tp,
        value_heads=heads,
        head_dim=linear.key_dim,
        value_dim=linear.value_dim,
    )
    mixed = Stream(dtype=local.dtype, size_bytes=2 * local.item_bytes * local.tokens * (2 * keys + values))
    gated = RMSNorm(dtype=local.dtype, tokens=local.tokens * heads, hidden=linear.value_dim)
    return (
        Module(
            name="qkv",
            works=((local.gemm(*products["qkv"]), 1), (mixed, 1)),
            exchanges=entering(local),
        ),
        Module(
            name=CORE, works=((delta, 1 / local.plan.cp),), exchanges=exchange_of_keys(local, values, 2 * keys + values)
        ),
        Module(name="proj", works=((gated, 1), (local.gemm(*products["proj"]), 1)), exchanges=leaving(local)),
        Module(name="residual", works=local.residual()),
    )


def _rotary(local: Local, heads: int, width: int) -> RoPE:
    batch = local.run.batch
    return RoPE(
        dtype=local.dtype, batch=batch.micro, seq_len=batch.seq_len // local.plan.cp, heads=heads, head_dim=width
    )


def _core(local: Local, heads: int, kv_heads: int, head_dim: int, *, window: int = 0, value_dim: int = 0) -> Works:
    """Attention itself; a rank of cp does an even share of it."""
    batch, execution = local.run.batch, local.execution
    if execution.attention == "unfused":
        return _unfused(local, heads, head_dim, value_dim or head_dim)
    attention = Attention(
        dtype=local.dtype,
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
    return ((attention, 1 / local.plan.cp),)


def _unfused(local: Local, heads: int, head_dim: int, value_dim: int) -> Works:
    """Two products with softmax, and dropout, between them (Megatron-LM's core attention)."""
    batch, dtype, share = local.run.batch, local.dtype, 1 / local.plan.cp
    seq_len, matrices = batch.seq_len, batch.micro * heads
    scores = BatchedGemm(dtype=dtype, batch=matrices, m=seq_len, n=seq_len, k=head_dim, adds=True)
    values = BatchedGemm(dtype=dtype, batch=matrices, m=seq_len, n=value_dim, k=seq_len, adds=False)
    fused = local.execution.elementwise == "fused"
    between = (CausalSoftmax,) if fused else (MaskFill, Softmax)
    softmax = tuple((kind(dtype=dtype, matrices=matrices, seq_len=seq_len), share) for kind in between)
    dropped = ((Dropout(dtype=dtype, count=matrices * seq_len**2), share),) if local.execution.dropout else ()
    return ((scores, share), *softmax, *dropped, (values, share))
