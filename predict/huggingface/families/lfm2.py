"""Liquid AI's LFM2: short convolutions with a few layers of attention, dense and with mixtures of experts."""

from collections.abc import Mapping

from predict.huggingface.families.family import (
    LLAMA_BLOCK,
    LLAMA_LIKE,
    NO_BIAS,
    Family,
    LayerPattern,
    after_dense,
    never,
    size,
    switch,
    unused,
)
from sampling.files.schema import Key, Scalar

LFM2: Mapping[str, Key] = {
    **{field: key for field, key in LLAMA_LIKE.items() if field not in ("head_dim", "activation")},
    "kv_heads": size("num_key_value_heads", default=8),
    "tied": switch("tie_word_embeddings", True),
    "short_conv.conv": size("conv_L_cache", default=3),
}
LFM2_BLOCK: Mapping[str, Scalar] = {**LLAMA_BLOCK, **NO_BIAS, "qk_norm": True}
UNUSED = unused("lfm2")


def adjusted_width(fields: dict[str, Scalar]) -> None:
    """Two thirds of the width that the config states, up to a multiple (transformers, `Lfm2MLP`)."""
    ffn, multiple = fields.get("ffn"), fields.get("pattern.multiple")
    if isinstance(ffn, int) and isinstance(multiple, int) and fields.get("pattern.adjusted"):
        fields["ffn"] = -(-(2 * ffn // 3) // multiple) * multiple


FAMILIES: Mapping[str, Family] = {
    "lfm2": Family(
        keys={
            **LFM2,
            "pattern.adjusted": switch("block_auto_adjust_ff_dim", True),
            "pattern.multiple": size("block_multiple_of", default=256),
        },
        fixed=LFM2_BLOCK,
        pattern=LayerPattern(mixer="conv", full=never, typed=True, full_named="full_attn_idxs"),
        adjust=adjusted_width,
        neutral=UNUSED,
    ),
    "lfm2_moe": Family(
        keys={
            **LFM2,
            "experts.count": size("num_experts", default=32),
            "experts.topk": size("num_experts_per_tok", default=4),
            "experts.ffn": size("moe_intermediate_size", default=1792),
            "pattern.dense_before": size("num_dense_layers", default=2, minimum=0),
        },
        fixed=LFM2_BLOCK,
        pattern=LayerPattern(mixer="conv", full=never, typed=True, sparse=after_dense),
        neutral=UNUSED | {"use_expert_bias"},
    ),
}
