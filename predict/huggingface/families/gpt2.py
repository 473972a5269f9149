"""GPT-2 and GPT-NeoX."""

from collections.abc import Mapping

from predict.huggingface.families.family import (
    MOST_LAYERS,
    PLAIN_ACTIVATIONS,
    PLAIN_BLOCK,
    SIZES,
    Family,
    Number,
    activation,
    size,
    switch,
)

FAMILIES: Mapping[str, Family] = {
    "gpt2": Family(
        keys={
            "layers": size("n_layer", maximum=MOST_LAYERS),
            "hidden": size("n_embd"),
            "heads": size("n_head"),
            "ffn": size("n_inner", required=False, nullable=True),
            "vocab": size("vocab_size"),
            "max_positions": size("n_positions"),
            "activation": activation("activation_function", PLAIN_ACTIVATIONS, "gelu_new"),
            "tied": switch("tie_word_embeddings", True),
        },
        fixed={**PLAIN_BLOCK, "rope": False, "attention_bias": True},
    ),
    "gpt_neox": Family(
        keys={
            **SIZES,
            "activation": activation("hidden_act", PLAIN_ACTIVATIONS, "gelu"),
            "attention_bias": switch("attention_bias", True),
            "tied": switch("tie_word_embeddings", False),
            "parallel_residual": switch("use_parallel_residual", True),
        },
        fixed={**PLAIN_BLOCK, "rope": True},
        rotary=Number(names=("rotary_pct", "partial_rotary_factor"), default=0.25),
    ),
}
