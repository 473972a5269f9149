"""GPT-OSS."""

from collections.abc import Mapping

from predict.huggingface.families.family import (
    LLAMA_BLOCK,
    LLAMA_LIKE,
    Family,
    LayerPattern,
    always,
    last_of_interval,
    size,
    switch,
)

FAMILIES: Mapping[str, Family] = {
    "gpt_oss": Family(
        keys={
            **LLAMA_LIKE,
            "head_dim": size("head_dim", default=64),
            "attention_bias": switch("attention_bias", True),
            "pattern.window": size("sliding_window", default=128, nullable=True, minimum=0),
            "experts.count": size("num_local_experts"),
            "experts.topk": size("num_experts_per_tok"),
        },
        fixed={
            **LLAMA_BLOCK,
            "mlp_bias": False,
            "sinks": True,
            "scaled_rope": True,
            "pattern.interval": 2,
            "experts.bias": True,
            "experts.clamped": True,
            "experts.router_bias": True,
        },
        pattern=LayerPattern(mixer="sliding", full=last_of_interval, typed=True, sparse=always),
        neutral=frozenset({"swiglu_alpha", "swiglu_limit", "initial_context_length"}),
    ),
}
