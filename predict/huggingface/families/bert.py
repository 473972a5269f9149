"""Encoders: BERT, and ModernBERT with rotary positions and attention in windows."""

from collections.abc import Mapping
from typing import Any

from predict.huggingface.families.family import (
    PLAIN_ACTIVATIONS,
    PLAIN_BLOCK,
    SIZES,
    Family,
    LayerPattern,
    activation,
    size,
    switch,
    unused,
)
from sampling.files.schema import Scalar

ENCODER: Mapping[str, Scalar] = {"bidirectional": True, "embedding_norm": True, "head_transform": True}


def first_of_interval(index: int, fields: Mapping[str, Any]) -> bool:
    return index % int(fields["pattern.interval"]) == 0


def whole_window(fields: dict[str, Scalar]) -> None:
    """A token sees half the window before and after it, and itself (transformers, `ModernBertAttention`)."""
    window = fields.get("pattern.window")
    if isinstance(window, int):
        fields["pattern.window"] = 2 * (window // 2) + 1


FAMILIES: Mapping[str, Family] = {
    "bert": Family(
        keys={
            **SIZES,
            "max_positions": size("max_position_embeddings", default=512),
            "activation": activation("hidden_act", PLAIN_ACTIVATIONS, "gelu"),
            "token_types": size("type_vocab_size", default=2),
            "tied": switch("tie_word_embeddings", True),
        },
        fixed={**PLAIN_BLOCK, **ENCODER, "rope": False, "attention_bias": True, "final_norm": False},
        neutral=frozenset({"position_embedding_type", "gradient_checkpointing"}),
    ),
    "modernbert": Family(
        keys={
            **SIZES,
            "max_positions": size("max_position_embeddings", default=8192),
            "activation": activation("hidden_activation", PLAIN_ACTIVATIONS, "gelu"),
            "attention_bias": switch("attention_bias", False),
            "mlp_bias": switch("mlp_bias", False),
            "norm_shift": switch("norm_bias", False),
            "tied": switch("tie_word_embeddings", True),
            "pattern.window": size("local_attention", default=128),
            "pattern.interval": size("global_attn_every_n_layers", default=3),
        },
        # its first layer reads the embedding's norm in place of one of its own, which is taken for one more here
        fixed={**ENCODER, "gated": True, "norm": "layer", "rope": True},
        pattern=LayerPattern(mixer="sliding", full=first_of_interval, typed=True),
        adjust=whole_window,
        neutral=unused("modernbert"),
    ),
}
