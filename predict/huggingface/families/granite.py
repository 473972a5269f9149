"""IBM's Granite 3, dense and with mixtures of experts; and Granite 4: attention alone or between layers of Mamba-2, either way."""

from collections.abc import Mapping
from typing import Any

from predict.huggingface.families.family import (
    ATTENTION_BIAS,
    LLAMA_BLOCK,
    LLAMA_LIKE,
    Family,
    LayerPattern,
    always,
    never,
    size,
    switch,
    unused,
)
from sampling.files.schema import Key

# factors on embeddings, residual streams, scores and logits, which cost nothing of their own
FACTORS = frozenset({"embedding_multiplier", "logits_scaling", "residual_multiplier", "attention_multiplier"})
MAMBA: Mapping[str, Key] = {
    "mamba.heads": size("mamba_n_heads", default=128),
    "mamba.head_dim": size("mamba_d_head"),
    "mamba.groups": size("mamba_n_groups", default=1),
    "mamba.state": size("mamba_d_state", default=256),
    "mamba.conv": size("mamba_d_conv", default=4),
    "mamba.conv_bias": switch("mamba_conv_bias", True),
    "mamba.chunk": size("mamba_chunk_size", default=256),
}
"""Sizes of Mamba-2 as Granite 4 and Bamba name them."""


def has_experts(index: int, fields: Mapping[str, Any]) -> bool:
    return bool(fields.get("experts.count"))


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
    "granitemoehybrid": Family(
        keys={
            **LLAMA_LIKE,
            **MAMBA,
            "kv_heads": size("num_key_value_heads", required=False, nullable=True),
            # the shared experts are all the feed-forward of a model without routed ones
            "ffn": size("shared_intermediate_size", default=1024),
            "attention_bias": ATTENTION_BIAS,
            "experts.count": size("num_local_experts", default=8, minimum=0),
            "experts.topk": size("num_experts_per_tok", default=2, minimum=0),
            "experts.ffn": size("intermediate_size"),
            "experts.shared_ffn": size("shared_intermediate_size", default=1024),
        },
        fixed={**LLAMA_BLOCK, "mlp_bias": False},
        pattern=LayerPattern(mixer="mamba", full=never, typed=True, sparse=has_experts),
        choices={
            "position_embedding_type": {
                "rope": {"rope": True},
                "nope": {"rope": False, "no_positions": True},
                None: {"rope": False, "no_positions": True},
            }
        },
        neutral=unused("granitemoehybrid"),
    ),
}
