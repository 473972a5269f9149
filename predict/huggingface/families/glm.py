"""GLM-4; GLM-4.5 and its successors with mixtures of experts; GLM-4.7 Flash and GLM-5, whose attention is DeepSeek's."""

from collections.abc import Mapping
from dataclasses import replace

from predict.huggingface.families.deepseek import DEEPSEEK_FAMILY, SPARSE_ATTENTION_FAMILY
from predict.huggingface.families.family import (
    ATTENTION_BIAS,
    LLAMA_BLOCK,
    LLAMA_LIKE,
    MOST_PREDICTED_AHEAD,
    Family,
    LayerPattern,
    Number,
    after_dense,
    size,
    switch,
)

FAMILIES: Mapping[str, Family] = {
    "glm4": Family(
        keys={
            **LLAMA_LIKE,
            "kv_heads": size("num_key_value_heads", default=2, nullable=True),
            "head_dim": size("head_dim", default=128, nullable=True),
            "attention_bias": switch("attention_bias", True),
        },
        fixed={**LLAMA_BLOCK, "qkv_bias_only": True, "mlp_bias": False, "norms_a_layer": 4},
        rotary=Number(names=("partial_rotary_factor",), default=0.5),
    ),
    "glm4_moe_lite": DEEPSEEK_FAMILY,
    "glm_moe_dsa": replace(
        SPARSE_ATTENTION_FAMILY, neutral=SPARSE_ATTENTION_FAMILY.neutral | {"indexer_rope_interleave"}
    ),
    "glm4_moe": Family(
        keys={
            **LLAMA_LIKE,
            "attention_bias": ATTENTION_BIAS,
            "qk_norm": switch("use_qk_norm", False),
            "experts.count": size("n_routed_experts"),
            "experts.topk": size("num_experts_per_tok"),
            "experts.ffn": size("moe_intermediate_size"),
            "experts.shared_count": size("n_shared_experts", default=1, minimum=0),
            "pattern.dense_before": size("first_k_dense_replace", default=1, minimum=0),
            "mtp_layers": size("num_nextn_predict_layers", default=0, minimum=0, maximum=MOST_PREDICTED_AHEAD),
        },
        fixed={**LLAMA_BLOCK, "qkv_bias_only": True, "mlp_bias": False},
        pattern=LayerPattern(sparse=after_dense),
        rotary=Number(names=("partial_rotary_factor",), default=0.5),
    ),
}
