"""ByteDance's Seed-OSS."""

from collections.abc import Mapping

from predict.huggingface.families.family import LLAMA_BLOCK, LLAMA_LIKE, Family, size, switch

FAMILIES: Mapping[str, Family] = {
    "seed_oss": Family(
        keys={
            **LLAMA_LIKE,
            "kv_heads": size("num_key_value_heads", default=8, nullable=True),
            "head_dim": size("head_dim", default=128, nullable=True),
            "attention_bias": switch("attention_bias", True),
            "mlp_bias": switch("mlp_bias", False),
        },
        fixed={**LLAMA_BLOCK, "qkv_bias_only": True},
        neutral=frozenset({"residual_dropout"}),
    ),
}
