"""Llama; Llama 3.2 Vision, some of whose layers attend to images; and Llama 4, whose attention sees chunks, with mixtures of experts."""

from collections.abc import Mapping
from typing import Any

from predict.huggingface.families.family import (
    ATTENTION_BIAS,
    LLAMA_BLOCK,
    LLAMA_LIKE,
    NO_BIAS,
    Family,
    LayerPattern,
    last_of_interval,
    last_of_step,
    size,
    switch,
    unused,
)
from predict.model.spec import CROSS

LLAMA4 = Family(
    keys={
        **LLAMA_LIKE,
        "kv_heads": size("num_key_value_heads", default=8, nullable=True),
        "head_dim": size("head_dim", default=128, nullable=True),
        "attention_bias": ATTENTION_BIAS,
        "ffn": size("intermediate_size_mlp", default=16384),
        "experts.ffn": size("intermediate_size", default=8192),
        "experts.count": size("num_local_experts", default=16),
        "experts.topk": size("num_experts_per_tok", default=1),
        "pattern.step": size("interleave_moe_layer_step", default=1),
        "pattern.interval": size("no_rope_layer_interval", default=4),
        "pattern.window": size("attention_chunk_size", default=8192, nullable=True, minimum=0),
    },
    fixed={**LLAMA_BLOCK, "mlp_bias": False, "experts.shared_count": 1},
    pattern=LayerPattern(mixer="chunked", full=last_of_interval, typed=True, sparse=last_of_step),
    # every fourth layer leaves queries and keys where they are, and others norm them without weights, which is little of a step
    neutral=unused("llama4"),
    nested=True,
)

LISTED = frozenset(range(3, 40, 5))
"""The layers that attend to images where a config lists none (transformers, configuration_mllama.py)."""


def sees_text(index: int, fields: Mapping[str, Any]) -> bool:
    return index not in LISTED


MLLAMA = Family(
    keys={**LLAMA_LIKE, "kv_heads": size("num_key_value_heads", default=8, nullable=True)},
    fixed={
        **LLAMA_BLOCK,
        **NO_BIAS,
        "further_rows": 8,
        "cross.tokens": 0,
        "cross.normed": False,
        "cross.qk_norm": True,
    },
    pattern=LayerPattern(mixer=CROSS, full=sees_text, mixer_named="cross_attention_layers", gates_mixer=True),
    neutral=frozenset({"dropout"}),
    nested=True,
)
"""Text of Llama 3.2 Vision, whose layers that attend to images do so in place of attention to the text."""

FAMILIES: Mapping[str, Family] = {
    "mllama": MLLAMA,
    "mllama_text_model": MLLAMA,
    "llama4": LLAMA4,
    "llama4_text": LLAMA4,
    "llama": Family(
        keys={
            **LLAMA_LIKE,
            "kv_heads": size("num_key_value_heads", required=False, nullable=True),
            "attention_bias": ATTENTION_BIAS,
            "mlp_bias": switch("mlp_bias", False),
        },
        fixed=LLAMA_BLOCK,
    ),
}
