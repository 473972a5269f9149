"""MiniMax M2, whose layers are all full attention."""

from collections.abc import Mapping

from predict.huggingface.families.family import (
    LLAMA_BLOCK,
    LLAMA_LIKE,
    MOST_PREDICTED_AHEAD,
    NO_BIAS,
    Family,
    LayerPattern,
    Number,
    always,
    size,
)

FAMILIES: Mapping[str, Family] = {
    "minimax_m2": Family(
        keys={
            **LLAMA_LIKE,
            "kv_heads": size("num_key_value_heads", default=8, nullable=True),
            "head_dim": size("head_dim", default=128, nullable=True),
            "experts.count": size("num_local_experts"),
            "experts.topk": size("num_experts_per_tok"),
            "rotary_dim": size("rotary_dim", required=False),
            "mtp_layers": size("num_mtp_modules", default=0, minimum=0, maximum=MOST_PREDICTED_AHEAD),
        },
        fixed={**LLAMA_BLOCK, **NO_BIAS, "qk_norm": True, "qk_norm_all_heads": True},
        pattern=LayerPattern(sparse=always),
        rotary=Number(names=("partial_rotary_factor",), default=1.0),
        neutral=frozenset({"use_qk_norm", "qk_norm_type", "attn_type_list", "use_routing_bias"}),
    ),
}
