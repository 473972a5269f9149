"""Attention itself, the rotary embedding before it and the projection after it, which attention and latent attention share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from predict.memory.components.saved_tensors import Saved, SavedTensors
from predict.memory.components.sizes import FP32, Sizes

CORE = "core_attn"


@dataclass(frozen=True, kw_only=True, slots=True)
class Heads:
    """Heads of a rank, and bytes of all their queries, keys and values."""

    heads: int
    kv_heads: int
    head_dim: int
    queries: float
    keys: float
    values: float


def rotary_bytes(sizes: Sizes) -> float:
    """Cosines and sines, 2·S·d·e bytes: one storage for all layers of a forward."""
    rank = sizes.rank
    if not sizes.model.rope or sizes.profile.static_rotary:
        return 0.0
    return 2.0 * sizes.item * (rank.run.batch.seq_len // rank.plan.cp) * _rotary_width(sizes)


def looked_up_rotary_bytes(sizes: Sizes) -> float:
    """Cosines and sines of each token's position, for queries and for keys, 4·T·d·e bytes per layer."""
    if not sizes.model.rope or not sizes.profile.gathers_rotary:
        return 0.0
    return 4.0 * sizes.item * sizes.tokens * _rotary_width(sizes)


def _rotary_width(sizes: Sizes) -> int:
    model = sizes.model
    return model.latent.rope_dim if model.latent else model.rotary_dim or model.head_dim


def core_attention(
    sizes: Sizes, heads: Heads, *, storage: float = 0.0, if_recomputed: Mapping[str, float] | None = None
) -> Saved:
    """Queries, keys and values, and the statistics or scores of their softmax; the output is the projection's input.

    `storage`: bytes that share the storage of the values. `if_recomputed`: what else drops queries, keys and values.
    """
    arguments = SavedTensors(
        component=CORE,
        kept=heads.queries + heads.keys + heads.values + storage,
        if_recomputed=if_recomputed or {},
    )
    if sizes.rank.execution.attention == "unfused":
        return (arguments, _scores(sizes, heads))
    # FlashAttention-2 accumulates the gradient of the queries in fp32 and, of grouped queries, a key's and value's for every head
    accumulated = FP32 * sizes.tokens * heads.heads * heads.head_dim
    repeated = (heads.heads // heads.kv_heads - 1) * (heads.keys + heads.values)
    statistics = SavedTensors(
        component=CORE,
        kept=FP32 * sizes.tokens * heads.heads,
        if_recomputed={CORE: 0.0},
        in_backward=heads.queries + heads.keys + heads.values + accumulated + repeated,
    )
    return (arguments, statistics)


def _scores(sizes: Sizes, heads: Heads) -> SavedTensors:
    """Two products with softmax between: e bytes per score for it, with dropout a mask and its result, 2e + 1 in all
    (Korthikanti et al., arXiv 2205.05198, eq. 1: 5·a·s²·b); Hugging Face's rotary models keep an fp32 softmax and its cast.

    Keys and values of grouped queries are repeated for every head. The result of a tanh that bounds the scores is kept too.
    """
    rank, item, model = sizes.rank, sizes.item, sizes.model
    batch, repeat = rank.run.batch, heads.heads // heads.kv_heads
    scores = float(batch.micro * heads.heads * batch.seq_len**2) / rank.plan.cp
    upcast = not sizes.fused_softmax and model.rope
    softmax = FP32 if upcast else item
    dropped = item + 1 if rank.execution.dropout else (item if upcast and item != FP32 else 0)
    cap = item if model.attention_cap else 0
    mask = 0.0 if sizes.fused_softmax or model.rope else float(batch.seq_len**2)
    return SavedTensors(
        component=CORE,
        kept=(repeat - 1) * (heads.keys + heads.values) + scores * (softmax + dropped + cap) + mask,
        if_recomputed={CORE: 0.0},
        in_forward=item * scores,
        in_backward=(2 * FP32 - item if upcast else item) * scores + heads.values * repeat,
    )


def projection(sizes: Sizes, output: float, *, gate: float = 0.0, partial_rotary: bool) -> SavedTensors:
    """Attention's output, `output` bytes, which is the projection's input; twice where it was copied, and an fp8 copy for fp8
    products.

    torch's attention gives its output the layout of the queries, which is heads before tokens where they were concatenated of a
    rotated and a plain part; the projection reads, and keeps, a copy then (counted on CPU, torch 2.13).
    """
    # compiled, a gate reads the output in place and only the product of both is kept
    in_place = sizes.profile.megatron or (sizes.profile.compiled and sizes.model.query_gate)
    copied = partial_rotary and sizes.rank.execution.attention != "unfused" and not in_place
    kept = output * (2 if copied else 1) + gate
    if sizes.fp8_inputs:
        kept += output / sizes.item
    return SavedTensors(component="proj", kept=kept, in_backward=output)
