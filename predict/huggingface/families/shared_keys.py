"""Keys and fixed fields that several families share."""

from __future__ import annotations

from collections.abc import Mapping

from predict.huggingface.families.family import (
    GATED_ACTIVATIONS,
    MOST_LAYERS,
    LayerPattern,
    Number,
    activation,
    never,
    size,
    switch,
)
from sampling.files.schema import Key, Scalar

SIZES: Mapping[str, Key] = {
    "layers": size("num_hidden_layers", maximum=MOST_LAYERS),
    "hidden": size("hidden_size"),
    "heads": size("num_attention_heads"),
    "ffn": size("intermediate_size"),
    "vocab": size("vocab_size"),
    "max_positions": size("max_position_embeddings", required=False),
}
LLAMA_LIKE: Mapping[str, Key] = {
    **SIZES,
    "kv_heads": size("num_key_value_heads", nullable=True),
    "head_dim": size("head_dim", required=False, nullable=True),
    "activation": activation("hidden_act", GATED_ACTIVATIONS, "silu"),
    "tied": switch("tie_word_embeddings", False),
}
LLAMA_BLOCK: Mapping[str, Scalar] = {"gated": True, "norm": "rms", "rope": True}
NO_BIAS: Mapping[str, Scalar] = {"attention_bias": False, "mlp_bias": False}
PLAIN_BLOCK: Mapping[str, Scalar] = {"gated": False, "norm": "layer", "mlp_bias": True}
ATTENTION_BIAS = switch("attention_bias", False)
QUARTER_ROTARY = Number(names=("partial_rotary_factor",), default=0.25)
WINDOW = size("sliding_window", required=False, nullable=True, minimum=0)
EVERY_LAYER_SLIDES = LayerPattern(mixer="sliding", full=never)
