"""DeepSeek-V2 and V3: latent attention and a mixture of experts."""

from collections.abc import Mapping

from predict.huggingface.families.family import (
    ATTENTION_BIAS,
    LLAMA_BLOCK,
    LLAMA_LIKE,
    MOST_PREDICTED_AHEAD,
    Family,
    LayerPattern,
    after_dense,
    size,
)
from sampling.files.schema import Key

DEEPSEEK: Mapping[str, Key] = {
    **{name: key for name, key in LLAMA_LIKE.items() if name != "head_dim"},
    "kv_heads": size("num_key_value_heads", required=False, nullable=True),
    "attention_bias": ATTENTION_BIAS,
    "latent.q_rank": size("q_lora_rank", nullable=True),
    "latent.kv_rank": size("kv_lora_rank"),
    "latent.nope_dim": size("qk_nope_head_dim"),
    "latent.rope_dim": size("qk_rope_head_dim"),
    "latent.value_dim": size("v_head_dim"),
    "experts.count": size("n_routed_experts"),
    "experts.topk": size("num_experts_per_tok"),
    "experts.ffn": size("moe_intermediate_size"),
    "experts.shared_count": size("n_shared_experts", default=0, nullable=True, minimum=0),
    "experts.groups": size("n_group", default=1, nullable=True),
    "experts.topk_groups": size("topk_group", default=1, nullable=True),
    "pattern.dense_before": size("first_k_dense_replace", default=0, minimum=0),
    "mtp_layers": size("num_nextn_predict_layers", default=0, minimum=0, maximum=MOST_PREDICTED_AHEAD),
}
DEEPSEEK_FAMILY = Family(
    keys=DEEPSEEK,
    fixed={**LLAMA_BLOCK, "mlp_bias": False},
    pattern=LayerPattern(sparse=after_dense, sparse_typed=True),
    neutral=frozenset({"head_dim", "qk_head_dim"}),
)

SPARSE_ATTENTION_FAMILY = Family(
    keys={
        **DEEPSEEK,
        "latent.index_heads": size("index_n_heads"),
        "latent.index_dim": size("index_head_dim"),
        "latent.index_topk": size("index_topk"),
    },
    fixed={**LLAMA_BLOCK, "mlp_bias": False},
    pattern=LayerPattern(sparse=after_dense, sparse_typed=True, typed=True, full_called="indexed_attention"),
    neutral=frozenset({"head_dim", "qk_head_dim"}),
)
"""Attention to the keys that an indexer picks (DeepSeek-V3.2)."""

FAMILIES: Mapping[str, Family] = {
    "deepseek_v2": DEEPSEEK_FAMILY,
    "deepseek_v3": DEEPSEEK_FAMILY,
    "deepseek_v32": SPARSE_ATTENTION_FAMILY,
}
