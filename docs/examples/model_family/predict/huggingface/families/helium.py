"""Kyutai's Helium: Llama's layers, with heads of a size of their own."""

from __future__ import annotations

from collections.abc import Mapping

from predict.huggingface.families.family import ATTENTION_BIAS, LLAMA_BLOCK, LLAMA_LIKE, Family, size, switch

FAMILIES: Mapping[str, Family] = {
    "helium": Family(
        keys={
            **LLAMA_LIKE,
            "head_dim": size("head_dim", default=128),
            "attention_bias": ATTENTION_BIAS,
            "mlp_bias": switch("mlp_bias", False),
        },
        fixed=LLAMA_BLOCK,
    ),
}
