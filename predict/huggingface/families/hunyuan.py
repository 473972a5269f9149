"""Hunyuan, dense."""

from __future__ import annotations

from collections.abc import Mapping

from predict.huggingface.families.family import ATTENTION_BIAS, LLAMA_BLOCK, LLAMA_LIKE, Family, size

FAMILIES: Mapping[str, Family] = {
    "hunyuan_v1_dense": Family(
        keys={
            **LLAMA_LIKE,
            "kv_heads": size("num_key_value_heads", required=False, nullable=True),
            "attention_bias": ATTENTION_BIAS,
        },
        fixed={**LLAMA_BLOCK, "mlp_bias": False, "qk_norm": True},
        choices={"use_cla": {None: {}, False: {}}, "use_qk_norm": {None: {}, True: {}}},
        neutral=frozenset(
            {
                "add_classification_head",
                "attention_head_dim",
                "cla_share_factor",
                "class_num",
                "dense_list",
                "enable_lm_head_fp32",
                "eod_token_id",
                "mask_init_id",
                "mlp_types",
                "norm_type",
                "org_vocab_size",
                "pool_type",
                "text_end_id",
                "text_start_id",
                "use_rotary_pos_emb",
            }
        ),
    ),
}
