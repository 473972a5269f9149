"""What attention, latent attention and linear attention keep for their backward."""

from __future__ import annotations

from predict.memory.components.norms import input_part, keeps_its_input, norm_bytes, norm_part, residual_parts
from predict.memory.components.part import Part, Parts
from predict.memory.components.share import FP32, Share
from predict.model.layer_kinds import LayerKind
from predict.model.parts.latent_attention import LatentAttention
from predict.model.parts.linear_attention import LinearAttention

CHUNK = 64
"""Tokens of a chunk of the gated delta rule (transformers 5.23 and flash-linear-attention alike)."""


def mixer_parts(share: Share, kind: LayerKind) -> Parts:
    model = share.rank.model
    norm = norm_part(share, separate=model.latent is not None and kind.mixer != "linear")
    if kind.mixer == "linear" and model.linear:
        return (norm, *_linear(share, model.linear), *residual_parts(share, last=False))
    own = _latent(share, model.latent) if model.latent else _attention(share)
    return (norm, *own, *residual_parts(share, last=False))


def rotary_bytes(share: Share) -> float:
    """Cosines and sines: 2·S·d·e, one storage for all layers of a forward."""
    model, rank = share.rank.model, share.rank
    if not model.rope or share.profile.static_rotary:
        return 0.0
    width = model.latent.rope_dim if model.latent else model.rotary_dim or model.head_dim
    return 2.0 * share.item * (rank.run.batch.seq_len // rank.plan.cp) * width


def _attention(share: Share) -> Parts:
    """T[e·H + e(2A·d + 2G·d) + 4A] with flash attention (Dao, arXiv 2307.08691: queries, keys, values, output and the
    log-sum-exp), byte-equal to torch's for grouped queries without a repeat; heads divided by tp."""
    model, item, tokens = share.rank.model, share.item, share.tokens
    heads, groups = model.heads // share.tp, max(1, model.kv_heads // share.tp)
    queries, keys = item * tokens * heads * model.head_dim, item * tokens * groups * model.head_dim
    # the product that the gate makes of attention's output, and its sigmoid where that is not made again
    gate = queries * (1 if share.profile.compiled else 2) if model.query_gate else 0.0
    return (
        input_part(share, "qkv", separate_norm=False),
        Part(component="qkv", kept=_normed_heads(share, heads, groups), passing=queries + keys),
        Part(component="rope", kept=rotary_bytes(share), passing=queries + keys),
        *_core(share, heads, groups, queries=queries, keys=keys, values=keys, head_dim=model.head_dim),
        _proj(share, queries, gate=gate, copied=_laid_out_anew(share, partial=0 < model.rotary_dim < model.head_dim)),
    )


def _normed_heads(share: Share, heads: int, groups: int) -> float:
    """The norms of queries and keys. One that keeps its input itself keeps the gate beside the queries, as one storage."""
    model, tokens = share.rank.model, share.tokens
    if not model.qk_norm:
        return 0.0
    sizes = sum(norm_bytes(share, tokens * own, model.head_dim) for own in (heads, groups))
    whole = model.query_gate and keeps_its_input(share) and not share.profile.megatron
    return sizes + (share.item * tokens * heads * model.head_dim if whole else 0.0)


def _laid_out_anew(share: Share, *, partial: bool) -> bool:
    """torch's attention gives its output the queries' layout, which is heads before tokens where they were put together of a
    rotated and a plain part; the projection then reads, and keeps, a copy (counted on CPU, torch 2.13)."""
    flash = share.rank.execution.attention != "unfused"
    # compiled, a gate reads the output as it lies and only the product of both is kept
    read_in_place = share.profile.compiled and share.rank.model.query_gate
    return partial and flash and not share.profile.megatron and not read_in_place


def _proj(share: Share, output: float, *, gate: float = 0.0, copied: bool = False) -> Part:
    """Attention's output, which is the projection's input; a second one where it had to be laid out anew or quantised."""
    kept = output * (2 if copied else 1) + gate
    if share.quantised:
        kept += output / share.item
    return Part(component="proj", kept=kept, gradients=output)


def _core(
    share: Share,
    heads: int,
    groups: int,
    *,
    queries: float,
    keys: float,
    values: float,
    head_dim: int,
    beside: float = 0.0,
) -> Parts:
    """Without its output. `beside` lies in the values' storage; Megatron-Core's `mla_up_proj` frees the arguments as well."""
    discarded = share.rank.model.latent and share.profile.frees_recomputed_outputs
    arguments = Part(
        component="core_attn",
        kept=queries + keys + values + beside,
        left={"mla_up_proj": 0.0} if discarded else {},
    )
    if share.rank.execution.attention == "unfused":
        return (arguments, _squares(share, heads, keys=keys, values=values, repeat=heads // groups))
    # FlashAttention-2 adds up the queries' gradient in fp32 and, of grouped queries, a key's and value's for every head
    repeated = (heads // groups - 1) * (keys + values)
    return (
        arguments,
        Part(
            component="core_attn",
            kept=FP32 * share.tokens * heads,
            left={"core_attn": 0.0},
            gradients=queries + keys + values + FP32 * share.tokens * heads * head_dim + repeated,
        ),
    )


def _squares(share: Share, heads: int, *, keys: float, values: float, repeat: int) -> Part:
    """Two products with softmax between: e bytes a score for it, with dropout a mask and its result, 2e + 1 in all
    (Korthikanti et al., arXiv 2205.05198, eq. 1: 5·a·s²·b); Hugging Face's rotary models keep an fp32 softmax and its cast.

    Keys and values of grouped queries are repeated for every head. What a tanh that bounds the scores gives is kept too.
    """
    rank, item = share.rank, share.item
    batch, model = rank.run.batch, rank.model
    scores = float(batch.micro * heads * batch.seq_len**2) / rank.plan.cp
    upcast = not share.profile.fused_softmax and model.rope
    softmax = FP32 if upcast else item
    dropped = item + 1 if rank.execution.dropout else (item if upcast and item != FP32 else 0)
    cap = item if model.attention_cap else 0
    mask = float(batch.seq_len**2) if not share.profile.fused_softmax and not model.rope else 0.0
    return Part(
        component="core_attn",
        kept=(repeat - 1) * (keys + values) + scores * (softmax + dropped + cap) + mask,
        left={"core_attn": 0.0},
        passing=item * scores,
        gradients=(2 * FP32 - item if upcast else item) * scores + values * repeat,
    )


def _latent(share: Share, latent: LatentAttention) -> Parts:
    """Multi-head latent attention (arXiv 2405.04434), flash: in Hugging Face's operators T[e·H + (4 + 2e)(r_q + r_kv) + 8 +
    2e·A(dn + dr) + e·A(dn + dv) + 2e·A·dv + 4A] (byte-equal facts of 2026); in Transformer Engine T[e·H + 2e(r_q + r_kv) +
    e·dr + 8 + 2e·A(dn + dr) + 2e·A·dv + 4A] (by reading Megatron-Core's multi_latent_attention.py).

    The ways down are whole on every rank of tp; sequence parallelism divides them.
    """
    item, tokens = share.item, share.tokens
    heads = share.rank.model.heads // share.tp
    ranks = [rank for rank in (latent.q_rank, latent.kv_rank) if rank]
    compressed: float = sum(norm_bytes(share, share.rows, rank) for rank in ranks)
    inputs = sum(share.input_item * share.entering * rank for rank in ranks)
    entered: float = sum(item * share.rows * rank for rank in ranks)
    queries = item * tokens * heads * latent.query_dim
    values = item * tokens * heads * latent.value_dim
    flash = share.rank.execution.attention != "unfused"
    beside = 0.0 if share.profile.fused_latent or not flash else item * tokens * heads * latent.nope_dim
    if keeps_its_input(share):
        # the piece of the way down that the norm reads lies in one storage with the rotated key
        rotated = item * share.rows * latent.rope_dim
        entered, compressed = entered + rotated, compressed + rotated
    return (
        input_part(share, "qkv", separate_norm=True),
        Part(component="qkv", kept=compressed, left={"mla_up_proj": entered}, passing=entered),
        Part(component="qkv", kept=inputs, left={"mla_up_proj": 0.0}, passing=queries),
        Part(component="rope", kept=rotary_bytes(share), passing=2 * queries),
        *_core(
            share, heads, heads, queries=queries, keys=queries, values=values, head_dim=latent.query_dim, beside=beside
        ),
        _proj(share, values, copied=_laid_out_anew(share, partial=True)),
    )


def _linear(share: Share, linear: LinearAttention) -> Parts:
    """Gated DeltaNet (arXiv 2412.06464) after its input."""
    inputs = input_part(share, "qkv", separate_norm=False)
    return (inputs, *(_flash_linear(share, linear) if share.profile.flash_linear else _chunked_linear(share, linear)))


def _chunked_linear(share: Share, linear: LinearAttention) -> Parts:
    """transformers' torch fallback, byte-equal in bf16 where 64 divides S: B·S[32·vh·kd + 30·vh·vd + 1318·vh] +
    e·B·Dc(2S + conv − 1) + 8·vh + (B·S/64)(4·vh + 4·vh·kd·vd) + 4096, Dc channels of the convolution."""
    tokens, batch, tp = share.tokens, share.rank.run.batch.micro, share.tp
    heads, keys, values = linear.value_heads // tp, linear.key_dim, linear.value_dim
    output = share.item * tokens * heads * values
    a_token = 32 * heads * keys + 30 * heads * values + 1318 * heads
    states = tokens / CHUNK * FP32 * heads * (1 + keys * values)
    pairs = FP32 * CHUNK * heads * tokens
    return (
        Part(component="qkv", kept=share.item * linear.conv_width // tp * (2 * tokens + batch * (linear.conv - 1))),
        Part(
            component="core_attn",
            kept=tokens * a_token - output + states + 8 * heads + CHUNK**2,
            passing=pairs,
            gradients=2 * pairs,
        ),
        Part(component="proj", kept=output, gradients=output),
    )


def _flash_linear(share: Share, linear: LinearAttention) -> Parts:
    """flash-linear-attention (fla/ops/gated_delta_rule/chunk.py): queries and keys normed with their fp32 norms, values,
    decay, step and the [64, 64] system of each chunk; states come again. Its convolution keeps its input, its gated norm
    output and gate. By reading, not by count."""
    tokens, item, tp = share.tokens, share.item, share.tp
    heads, key_heads = linear.value_heads // tp, max(1, linear.key_heads // tp)
    keys, values = key_heads * linear.key_dim, heads * linear.value_dim
    mixed, output = item * tokens * (2 * keys + values), item * tokens * values
    small = tokens * (FP32 * heads + item * heads + 2 * FP32 * key_heads + 2 * FP32 * heads)
    return (
        Part(component="qkv", kept=mixed, passing=mixed),
        Part(
            component="core_attn",
            kept=mixed + item * tokens * heads * CHUNK + small,
            passing=2 * output,
            gradients=2 * mixed + item * tokens * heads * (linear.key_dim * linear.value_dim) / CHUNK,
        ),
        Part(
            component="proj",
            kept=2 * output + FP32 * tokens * heads + share.input_item * tokens * values,
            gradients=2 * output,
        ),
    )
