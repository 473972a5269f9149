"""StarCoder 2."""

from collections.abc import Mapping

from predict.huggingface.families.family import (
    EVERY_LAYER_SLIDES,
    PLAIN_ACTIVATIONS,
    PLAIN_BLOCK,
    SIZES,
    WINDOW,
    Family,
    activation,
    size,
    switch,
)

FAMILIES: Mapping[str, Family] = {
    "starcoder2": Family(
        keys={
            **SIZES,
            "kv_heads": size("num_key_value_heads", default=2, nullable=True),
            "activation": activation("hidden_act", PLAIN_ACTIVATIONS, "gelu_pytorch_tanh"),
            "tied": switch("tie_word_embeddings", True),
            "pattern.window": WINDOW,
        },
        fixed={**PLAIN_BLOCK, "rope": True, "attention_bias": True},
        pattern=EVERY_LAYER_SLIDES,
        choices={"use_bias": {None: {}, True: {}}},
        neutral=frozenset({"mlp_type", "norm_type", "norm_epsilon", "embedding_dropout", "residual_dropout"}),
    ),
}
