"""Hunyuan, dense."""

from collections.abc import Mapping

from predict.huggingface.families.family import ATTENTION_BIAS, LLAMA_BLOCK, LLAMA_LIKE, Family, size, unused

FAMILIES: Mapping[str, Family] = {
    "hunyuan_v1_dense": Family(
        keys={
            **LLAMA_LIKE,
            "kv_heads": size("num_key_value_heads", required=False, nullable=True),
            "attention_bias": ATTENTION_BIAS,
        },
        fixed={**LLAMA_BLOCK, "mlp_bias": False, "qk_norm": True},
        choices={"use_cla": {None: {}, False: {}}, "use_qk_norm": {None: {}, True: {}}},
        neutral=unused("hunyuan_v1_dense"),
    ),
}
