"""Arcee's AFM."""

from collections.abc import Mapping

from predict.huggingface.families.family import ATTENTION_BIAS, LLAMA_LIKE, Family, activation, size, switch

FAMILIES: Mapping[str, Family] = {
    "arcee": Family(
        keys={
            **LLAMA_LIKE,
            "kv_heads": size("num_key_value_heads", required=False, nullable=True),
            "activation": activation("hidden_act", ("relu2",), "relu2"),
            "attention_bias": ATTENTION_BIAS,
            "mlp_bias": switch("mlp_bias", False),
        },
        fixed={"gated": False, "norm": "rms", "rope": True},
    ),
}
