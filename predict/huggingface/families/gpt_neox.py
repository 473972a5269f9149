"""GPT-NeoX."""

from collections.abc import Mapping

from predict.huggingface.families.family import (
    PLAIN_ACTIVATIONS,
    PLAIN_BLOCK,
    SIZES,
    Family,
    Number,
    activation,
    switch,
)

FAMILIES: Mapping[str, Family] = {
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
