"""Multi-head latent attention (DeepSeek-AI, arXiv 2405.04434)."""

from __future__ import annotations

from predict.memory.components.core_attention import Heads, core_attention, projection, rotary_bytes
from predict.memory.components.norms import keeps_its_input, norm_bytes, normed_input
from predict.memory.components.saved_tensors import Saved, SavedTensors
from predict.memory.components.sizes import Sizes
from predict.model.parts.latent_attention import LatentAttention


def saved_tensors(sizes: Sizes, latent: LatentAttention) -> Saved:
    """Bytes with flash attention: in Hugging Face's operators T[e·H + (4 + 2e)(r_q + r_kv) + 8 + 2e·A(dn + dr) + e·A(dn + dv) +
    2e·A·dv + 4A] (byte-equal, torch 2.13); in Transformer Engine T[e·H + 2e(r_q + r_kv) + e·dr + 8 + 2e·A(dn + dr) + 2e·A·dv +
    4A] (from the source of Megatron-Core's multi_latent_attention.py).

    The down-projections are whole on every rank of tp; sequence parallelism divides their tokens.
    """
    item, tokens = sizes.item, sizes.tokens
    heads = sizes.model.heads // sizes.tp
    ranks = [rank for rank in (latent.q_rank, latent.kv_rank) if rank]
    compressed: float = sum(norm_bytes(sizes, sizes.rows, rank) for rank in ranks)
    inputs = sum(sizes.input_item * sizes.input_rows * rank for rank in ranks)
    norm_inputs: float = sum(item * sizes.rows * rank for rank in ranks)
    queries = item * tokens * heads * latent.query_dim
    values = item * tokens * heads * latent.value_dim
    flash = sizes.rank.execution.attention != "unfused"
    keys_with_values = 0.0 if sizes.profile.fused_latent or not flash else item * tokens * heads * latent.nope_dim
    if keeps_its_input(sizes):
        # the piece of the down-projection that the norm reads is in one storage with the rotated key
        rotated = item * sizes.rows * latent.rope_dim
        norm_inputs, compressed = norm_inputs + rotated, compressed + rotated
    shape = Heads(heads=heads, kv_heads=heads, head_dim=latent.query_dim, queries=queries, keys=queries, values=values)
    up_projection = {"mla_up_proj": 0.0}
    return (
        *normed_input(sizes, "qkv", is_module=True),
        SavedTensors(
            component="qkv", kept=compressed, if_recomputed={"mla_up_proj": norm_inputs}, in_forward=norm_inputs
        ),
        SavedTensors(component="qkv", kept=inputs, if_recomputed=up_projection, in_forward=queries),
        SavedTensors(component="rope", kept=rotary_bytes(sizes), in_forward=2 * queries),
        *core_attention(
            sizes,
            shape,
            storage=keys_with_values,
            if_recomputed=up_projection if sizes.profile.frees_recomputed_outputs else {},
        ),
        projection(sizes, values, partial_rotary=True),
    )
