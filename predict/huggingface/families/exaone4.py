"""EXAONE 4."""

from __future__ import annotations

from collections.abc import Mapping

from predict.huggingface.families.family import (
    LLAMA_BLOCK,
    LLAMA_LIKE,
    NO_BIAS,
    Family,
    LayerPattern,
    last_of_interval,
    size,
)

FAMILIES: Mapping[str, Family] = {
    "exaone4": Family(
        keys={
            **LLAMA_LIKE,
            "kv_heads": size("num_key_value_heads", default=32, nullable=True),
            "pattern.window": size("sliding_window", default=4096, nullable=True, minimum=0),
            "pattern.interval": size("sliding_window_pattern", default=4, nullable=True),
        },
        # two norms follow attention and MLP where Llama's precede them, as in OLMo 2
        fixed={**LLAMA_BLOCK, **NO_BIAS, "qk_norm": True},
        pattern=LayerPattern(mixer="sliding", full=last_of_interval, typed=True),
    ),
}
