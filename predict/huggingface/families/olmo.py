"""OLMo 2 and 3, and OLMoE."""

from collections.abc import Mapping

from predict.huggingface.families.family import (
    ATTENTION_BIAS,
    LLAMA_BLOCK,
    LLAMA_LIKE,
    Family,
    LayerPattern,
    always,
    last_of_interval,
    size,
)
from sampling.files.schema import Key, Scalar

OLMO: Mapping[str, Key] = {
    **LLAMA_LIKE,
    "kv_heads": size("num_key_value_heads", required=False, nullable=True),
    "attention_bias": ATTENTION_BIAS,
}
# two norms follow attention and MLP (arXiv 2501.00656, table 1) where Llama's precede them: as many, as wide, and
# with as many tensors kept for the backward, so that they cost what norms before them do
OLMO_BLOCK: Mapping[str, Scalar] = {
    **LLAMA_BLOCK,
    "mlp_bias": False,
    "qk_norm": True,
    "qk_norm_all_heads": True,
    "scales_in_fp32": True,
}

FAMILIES: Mapping[str, Family] = {
    "olmoe": Family(
        keys={
            **OLMO,
            "experts.count": size("num_experts", default=64),
            "experts.topk": size("num_experts_per_tok", default=8),
        },
        fixed=OLMO_BLOCK,
        pattern=LayerPattern(sparse=always),
        neutral=frozenset({"clip_qkv", "norm_topk_prob"}),
    ),
    "olmo2": Family(keys=OLMO, fixed=OLMO_BLOCK),
    "olmo3": Family(
        keys={**OLMO, "pattern.window": size("sliding_window", default=4096, nullable=True, minimum=0)},
        fixed={**OLMO_BLOCK, "pattern.interval": 4},
        pattern=LayerPattern(mixer="sliding", full=last_of_interval, typed=True),
    ),
}
