"""GPT-2."""

from collections.abc import Mapping

from predict.huggingface.families.family import (
    MOST_LAYERS,
    PLAIN_ACTIVATIONS,
    PLAIN_BLOCK,
    Family,
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
}
