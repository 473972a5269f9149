"""Gemma 1 to 3."""

from collections.abc import Mapping

from predict.huggingface.families.family import (
    ATTENTION_BIAS,
    LLAMA_BLOCK,
    LLAMA_LIKE,
    PLAIN_ACTIVATIONS,
    Family,
    LayerPattern,
    Number,
    activation,
    last_of_interval,
    size,
    switch,
)
from sampling.files.schema import Key, Scalar

GEMMA: Mapping[str, Key] = {
    **LLAMA_LIKE,
    "heads": size("num_attention_heads", default=8),
    "kv_heads": size("num_key_value_heads", default=4),
    "head_dim": size("head_dim", default=256),
    "activation": activation("hidden_activation", PLAIN_ACTIVATIONS, "gelu_pytorch_tanh"),
    "tied": switch("tie_word_embeddings", True),
    "attention_bias": ATTENTION_BIAS,
    "pattern.window": size("sliding_window", default=4096, nullable=True, minimum=0),
}
GEMMA_BLOCK: Mapping[str, Scalar] = {**LLAMA_BLOCK, "mlp_bias": False, "norms_a_layer": 4}
ALTERNATING = LayerPattern(mixer="sliding", full=last_of_interval, typed=True)


def _caps(attention: float | None, logits: float | None) -> Mapping[str, Number]:
    return {
        "attention_cap": Number(names=("attn_logit_softcapping",), default=attention),
        "logit_cap": Number(names=("final_logit_softcapping",), default=logits),
    }


GEMMA3 = Family(
    keys={
        **GEMMA,
        "vocab": size("vocab_size", default=262_208),
        "pattern.interval": size("sliding_window_pattern", default=6),
    },
    fixed={**GEMMA_BLOCK, "qk_norm": True},
    pattern=ALTERNATING,
    caps=_caps(None, None),
    positions_are_stretched=True,
    nested=True,
)

FAMILIES: Mapping[str, Family] = {
    "gemma": Family(
        keys={
            **LLAMA_LIKE,
            "heads": size("num_attention_heads", default=16),
            "kv_heads": size("num_key_value_heads", default=16),
            "head_dim": size("head_dim", default=256),
            # the first configs have it under `hidden_act`, as `gelu`
            "activation": activation("hidden_act", PLAIN_ACTIVATIONS, "gelu_pytorch_tanh"),
            "tied": switch("tie_word_embeddings", True),
            "attention_bias": ATTENTION_BIAS,
        },
        fixed={**LLAMA_BLOCK, "mlp_bias": False},
        neutral=frozenset({"hidden_activation", "use_bidirectional_attention"}),
    ),
    "gemma2": Family(
        keys=GEMMA,
        fixed={**GEMMA_BLOCK, "pattern.interval": 2},
        pattern=ALTERNATING,
        caps=_caps(50.0, 30.0),
    ),
    "gemma3": GEMMA3,
    "gemma3_text": GEMMA3,
}
