"""Mistral, Ministral 3, and their mixture of experts, Mixtral."""

from collections.abc import Mapping

from predict.huggingface.families.family import (
    EVERY_LAYER_SLIDES,
    LLAMA_BLOCK,
    LLAMA_LIKE,
    NO_BIAS,
    WINDOW,
    Family,
    LayerPattern,
    always,
    never,
    size,
)

FAMILIES: Mapping[str, Family] = {
    "mistral": Family(
        keys={**LLAMA_LIKE, "pattern.window": size("sliding_window", default=4096, nullable=True, minimum=0)},
        fixed={**LLAMA_BLOCK, **NO_BIAS},
        pattern=EVERY_LAYER_SLIDES,
    ),
    # every layer is full attention; the scale of queries by position costs nothing
    "ministral3": Family(
        keys={
            **LLAMA_LIKE,
            "kv_heads": size("num_key_value_heads", default=8, nullable=True),
            "head_dim": size("head_dim", default=128, nullable=True),
        },
        fixed={**LLAMA_BLOCK, **NO_BIAS},
    ),
    "mixtral": Family(
        keys={
            **LLAMA_LIKE,
            "pattern.window": WINDOW,
            "experts.count": size("num_local_experts"),
            "experts.topk": size("num_experts_per_tok"),
        },
        fixed={**LLAMA_BLOCK, **NO_BIAS},
        pattern=LayerPattern(mixer="sliding", full=never, sparse=always),
    ),
}
AROUND_DECODERS: Mapping[str, str] = {"mistral3": "mistral", "internvl": "qwen2"}
"""Mistral Small 3.1 and its successors, and Ministral 3, with their vision towers; InternVL around decoders of others."""
