"""Phi-3."""

from collections.abc import Mapping

from predict.huggingface.families.family import (
    EVERY_LAYER_SLIDES,
    LLAMA_BLOCK,
    LLAMA_LIKE,
    NO_BIAS,
    WINDOW,
    Family,
    Number,
    size,
)

FAMILIES: Mapping[str, Family] = {
    "phi3": Family(
        keys={
            **{name: key for name, key in LLAMA_LIKE.items() if name != "head_dim"},
            "kv_heads": size("num_key_value_heads", required=False, nullable=True),
            "pattern.window": WINDOW,
        },
        fixed={**LLAMA_BLOCK, **NO_BIAS},
        pattern=EVERY_LAYER_SLIDES,
        rotary=Number(names=("partial_rotary_factor",), default=1.0),
        neutral=frozenset({"original_max_position_embeddings"}),
    ),
}
