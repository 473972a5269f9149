"""SmolLM 3."""

from collections.abc import Mapping

from predict.huggingface.families.family import ATTENTION_BIAS, LLAMA_BLOCK, LLAMA_LIKE, Family, size, switch

FAMILIES: Mapping[str, Family] = {
    "smollm3": Family(
        keys={
            **LLAMA_LIKE,
            "kv_heads": size("num_key_value_heads", default=4, nullable=True),
            "attention_bias": ATTENTION_BIAS,
            "mlp_bias": switch("mlp_bias", False),
            "tied": switch("tie_word_embeddings", True),
        },
        fixed=LLAMA_BLOCK,
        # every fourth layer leaves its queries and keys where they are, which saves less than a thousandth of a step
        neutral=frozenset({"no_rope_layers", "no_rope_layer_interval"}),
    ),
}
