"""ERNIE 4.5, dense and with mixtures of experts."""

from collections.abc import Mapping
from typing import Any

from predict.huggingface.families.family import (
    LLAMA_BLOCK,
    LLAMA_LIKE,
    NO_BIAS,
    Family,
    LayerPattern,
    last_of_step,
    size,
    switch,
)
from sampling.files.schema import Key

ERNIE: Mapping[str, Key] = {**LLAMA_LIKE, "tied": switch("tie_word_embeddings", True)}


def between_ends(index: int, fields: Mapping[str, Any]) -> bool:
    """Whether a layer lies between the first and the last mixture, at its step."""
    first, last = int(fields["pattern.first"]), int(fields.get("pattern.last", MOST))
    return first <= index <= (MOST if last < 0 else last) and last_of_step(index, fields)


MOST = 2**31

FAMILIES: Mapping[str, Family] = {
    "ernie4_5": Family(
        keys={
            **ERNIE,
            "kv_heads": size("num_key_value_heads", default=2, nullable=True),
            "head_dim": size("head_dim", default=128, nullable=True),
        },
        fixed={**LLAMA_BLOCK, **NO_BIAS},
    ),
    "ernie4_5_moe": Family(
        keys={
            **ERNIE,
            "kv_heads": size("num_key_value_heads", default=4, nullable=True),
            "experts.count": size("moe_num_experts", default=64),
            "experts.topk": size("moe_k", default=6),
            "experts.ffn": size("moe_intermediate_size", default=1536),
            "experts.shared_count": size("moe_num_shared_experts", default=2, minimum=0),
            "pattern.first": size("moe_layer_start_index", default=1, minimum=0),
            "pattern.last": size("moe_layer_end_index", default=-1, minimum=-1),
            "pattern.step": size("moe_layer_interval", default=1),
        },
        # a correction of each expert's score chooses among them, as a bias of the router does
        fixed={**LLAMA_BLOCK, **NO_BIAS, "experts.router_bias": True},
        pattern=LayerPattern(sparse=between_ends),
        neutral=frozenset({"moe_norm_min"}),
    ),
}
