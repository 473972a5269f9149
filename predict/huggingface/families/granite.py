"""Granite 3, dense and with mixtures of experts."""

from collections.abc import Mapping

from predict.huggingface.families.family import (
    ATTENTION_BIAS,
    LLAMA_BLOCK,
    LLAMA_LIKE,
    Family,
    LayerPattern,
    always,
    size,
    switch,
)

# factors on embeddings, residual streams, scores and logits, which cost nothing of their own
FACTORS = frozenset({"embedding_multiplier", "logits_scaling", "residual_multiplier", "attention_multiplier"})
FAMILIES: Mapping[str, Family] = {
    "granite": Family(
        keys={
            **LLAMA_LIKE,
            "kv_heads": size("num_key_value_heads", required=False, nullable=True),
            "attention_bias": ATTENTION_BIAS,
            "mlp_bias": switch("mlp_bias", False),
        },
        fixed=LLAMA_BLOCK,
        neutral=FACTORS,
    ),
    "granitemoe": Family(
        keys={
            **LLAMA_LIKE,
            "kv_heads": size("num_key_value_heads", required=False, nullable=True),
            "attention_bias": ATTENTION_BIAS,
            "experts.count": size("num_local_experts", default=8),
            "experts.topk": size("num_experts_per_tok", default=2),
        },
        fixed={**LLAMA_BLOCK, "mlp_bias": False},
        pattern=LayerPattern(sparse=always),
        neutral=FACTORS,
    ),
}
