"""IBM's Granite 3: Llama's layers, with factors on embedding, attention, residual and logits that cost next to nothing."""

from __future__ import annotations

from collections.abc import Mapping

from predict.huggingface.families.family import ATTENTION_BIAS, LLAMA_BLOCK, LLAMA_LIKE, Family, switch

FAMILIES: Mapping[str, Family] = {
    "granite": Family(
        keys={**LLAMA_LIKE, "attention_bias": ATTENTION_BIAS, "mlp_bias": switch("mlp_bias", False)},
        fixed=LLAMA_BLOCK,
        neutral=frozenset({"embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling"}),
    ),
}
