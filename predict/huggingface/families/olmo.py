"""OLMo 2."""

from __future__ import annotations

from collections.abc import Mapping

from predict.huggingface.families.family import ATTENTION_BIAS, LLAMA_BLOCK, LLAMA_LIKE, Family, size
from sampling.files.schema import Key

OLMO: Mapping[str, Key] = {
    **LLAMA_LIKE,
    "kv_heads": size("num_key_value_heads", required=False, nullable=True),
    "attention_bias": ATTENTION_BIAS,
}

FAMILIES: Mapping[str, Family] = {
    "olmo2": Family(
        keys=OLMO,
        # its two norms follow attention and MLP (arXiv 2501.00656, table 1) where Llama's precede them: as many, as wide, and
        # with as many tensors kept for the backward, so that they cost what norms before them do
        fixed={**LLAMA_BLOCK, "mlp_bias": False, "qk_norm": True, "qk_norm_all_heads": True},
    ),
}
