"""Llama."""

from __future__ import annotations

from collections.abc import Mapping

from predict.huggingface.families.family import ATTENTION_BIAS, LLAMA_BLOCK, LLAMA_LIKE, Family, size, switch

FAMILIES: Mapping[str, Family] = {
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
