"""Bamba: Mamba-2 with a few layers of attention."""

from collections.abc import Mapping

from predict.huggingface.families.family import (
    LLAMA_BLOCK,
    LLAMA_LIKE,
    NO_BIAS,
    Family,
    LayerPattern,
    Number,
    never,
    size,
)
from predict.huggingface.families.granite import MAMBA

FAMILIES: Mapping[str, Family] = {
    "bamba": Family(
        keys={**LLAMA_LIKE, **MAMBA, "kv_heads": size("num_key_value_heads", default=8, nullable=True)},
        fixed={**LLAMA_BLOCK, **NO_BIAS},
        pattern=LayerPattern(mixer="mamba", full=never, typed=True, full_named="attn_layer_indices"),
        rotary=Number(names=("partial_rotary_factor",), default=0.5),
        neutral=frozenset({"mamba_expand", "time_step_limit", "z_loss_coefficient", "attn_rotary_emb"}),
    ),
}
