"""Qwen 2 and 3, dense and with mixtures of experts, and the text of Qwen2-VL to Qwen3-VL; Qwen3-Next and Qwen 3.5, with linear
attention."""

from collections.abc import Mapping
from dataclasses import replace

from predict.huggingface.families.family import (
    ATTENTION_BIAS,
    LLAMA_BLOCK,
    LLAMA_LIKE,
    QUARTER_ROTARY,
    Family,
    LayerPattern,
    always,
    before_windows,
    last_of_interval,
    last_of_step,
    never,
    second_or_beyond_windows,
    size,
    switch,
)
from sampling.files.schema import Key, Scalar

SWITCHED_WINDOW: Mapping[str, Key] = {
    "pattern.window": size("sliding_window", default=4096, nullable=True, minimum=0),
    "pattern.windowed": switch("use_sliding_window", False),
}
QWEN_WINDOW: Mapping[str, Key] = {
    **SWITCHED_WINDOW,
    "pattern.full_before": size("max_window_layers", default=28, minimum=0),
}
QWEN_PATTERN = LayerPattern(mixer="sliding", full=before_windows, typed=True)
SPARSE_BY_STEP: Mapping[str, Key] = {"pattern.step": size("decoder_sparse_step", default=1)}
QWEN_EXPERTS: Mapping[str, Key] = {
    "experts.count": size("num_experts"),
    "experts.topk": size("num_experts_per_tok"),
    "experts.ffn": size("moe_intermediate_size"),
}
SHARED_EXPERT = size("shared_expert_intermediate_size", minimum=0)
HYBRID: Mapping[str, Key] = {
    **LLAMA_LIKE,
    "head_dim": size("head_dim", default=256),
    "attention_bias": ATTENTION_BIAS,
    "query_gate": switch("attn_output_gate", True),
    "mtp_layers": size("mtp_num_hidden_layers", default=0, minimum=0),
    "linear.key_heads": size("linear_num_key_heads"),
    "linear.value_heads": size("linear_num_value_heads"),
    "linear.key_dim": size("linear_key_head_dim"),
    "linear.value_dim": size("linear_value_head_dim"),
    "linear.conv": size("linear_conv_kernel_dim"),
    "pattern.interval": size("full_attention_interval", default=4),
}
"""Qwen3-Next and its successors: three linear layers, then one of full attention."""
HYBRID_BLOCK: Mapping[str, Scalar] = {**LLAMA_BLOCK, "mlp_bias": False, "qk_norm": True}
QWEN3_5 = Family(
    keys=HYBRID,
    fixed=HYBRID_BLOCK,
    pattern=LayerPattern(mixer="linear", full=last_of_interval, typed=True),
    rotary=QUARTER_ROTARY,
    nested=True,
)
QWEN3_5_MOE = Family(
    keys={
        **{name: key for name, key in HYBRID.items() if name != "ffn"},
        **QWEN_EXPERTS,
        "experts.shared_ffn": SHARED_EXPERT,
    },
    fixed={**HYBRID_BLOCK, "ffn": 0, "experts.shared_gate": True},
    pattern=LayerPattern(mixer="linear", full=last_of_interval, typed=True, sparse=always),
    rotary=QUARTER_ROTARY,
    neutral=frozenset({"intermediate_size"}),
    nested=True,
)

QWEN2 = Family(
    keys={**LLAMA_LIKE, **QWEN_WINDOW},
    fixed={**LLAMA_BLOCK, "attention_bias": True, "qkv_bias_only": True, "mlp_bias": False},
    pattern=QWEN_PATTERN,
)
QWEN2_VL = replace(QWEN2, nested=True)
"""The text decoder of Qwen2-VL and Qwen2.5-VL, whose keys published configs have beside those of the tower."""
QWEN3_VL = Family(
    keys={**LLAMA_LIKE, "head_dim": size("head_dim", default=128), "attention_bias": ATTENTION_BIAS},
    fixed={**LLAMA_BLOCK, "mlp_bias": False, "qk_norm": True},
    nested=True,
)
QWEN3_VL_MOE = Family(
    keys={
        **LLAMA_LIKE,
        **QWEN_EXPERTS,
        **SPARSE_BY_STEP,
        "head_dim": size("head_dim", required=False, nullable=True),
        "ffn": size("intermediate_size", default=5632),
        "attention_bias": ATTENTION_BIAS,
    },
    fixed={**LLAMA_BLOCK, "mlp_bias": False, "qk_norm": True},
    pattern=LayerPattern(sparse=last_of_step, dense_named=True),
    nested=True,
)

FAMILIES: Mapping[str, Family] = {
    "qwen2": QWEN2,
    "qwen2_vl": QWEN2_VL,
    "qwen2_vl_text": QWEN2_VL,
    "qwen2_5_vl": QWEN2_VL,
    "qwen2_5_vl_text": QWEN2_VL,
    "qwen3_vl": QWEN3_VL,
    "qwen3_vl_text": QWEN3_VL,
    "qwen3_vl_moe": QWEN3_VL_MOE,
    "qwen3_vl_moe_text": QWEN3_VL_MOE,
    "qwen2_moe": Family(
        keys={
            **LLAMA_LIKE,
            **SWITCHED_WINDOW,
            **QWEN_EXPERTS,
            **SPARSE_BY_STEP,
            "attention_bias": switch("qkv_bias", True),
            "experts.shared_ffn": SHARED_EXPERT,
            "pattern.full_from": size("max_window_layers", default=28, minimum=0),
        },
        fixed={**LLAMA_BLOCK, "qkv_bias_only": True, "mlp_bias": False, "experts.shared_gate": True},
        pattern=LayerPattern(
            mixer="sliding", full=second_or_beyond_windows, typed=True, sparse=last_of_step, dense_named=True
        ),
    ),
    "qwen3": Family(
        keys={
            **LLAMA_LIKE,
            **QWEN_WINDOW,
            "head_dim": size("head_dim", default=128),
            "attention_bias": ATTENTION_BIAS,
        },
        fixed={**LLAMA_BLOCK, "mlp_bias": False, "qk_norm": True},
        pattern=QWEN_PATTERN,
    ),
    "qwen3_moe": Family(
        keys={
            **LLAMA_LIKE,
            **SWITCHED_WINDOW,
            **QWEN_EXPERTS,
            **SPARSE_BY_STEP,
            "ffn": size("intermediate_size", default=6144),
            "attention_bias": ATTENTION_BIAS,
        },
        fixed={**LLAMA_BLOCK, "mlp_bias": False, "qk_norm": True},
        pattern=LayerPattern(mixer="sliding", full=never, sparse=last_of_step, dense_named=True),
        neutral=frozenset({"max_window_layers"}),
    ),
    "qwen3_next": Family(
        keys={
            **HYBRID,
            **QWEN_EXPERTS,
            **SPARSE_BY_STEP,
            "ffn": size("intermediate_size", default=5632),
            "experts.shared_ffn": SHARED_EXPERT,
        },
        fixed={**HYBRID_BLOCK, "experts.shared_gate": True},
        pattern=LayerPattern(mixer="linear", full=last_of_interval, typed=True, sparse=last_of_step, dense_named=True),
        rotary=QUARTER_ROTARY,
    ),
    "qwen3_5": QWEN3_5,
    "qwen3_5_text": QWEN3_5,
    "qwen3_5_moe": QWEN3_5_MOE,
    "qwen3_5_moe_text": QWEN3_5_MOE,
}
