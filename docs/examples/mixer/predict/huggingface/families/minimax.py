"""MiniMax-01: lightning attention between layers of full attention, and a mixture of experts in each."""

from __future__ import annotations

from collections.abc import Mapping

from predict.huggingface.families.family import LLAMA_BLOCK, LLAMA_LIKE, NO_BIAS, Family, LayerPattern, always, size

FACTORS = ("full_attn", "linear_attn", "mlp")

FAMILIES: Mapping[str, Family] = {
    "minimax": Family(
        keys={
            **LLAMA_LIKE,
            "lightning.block": size("block_size", default=256),
            "experts.count": size("num_local_experts"),
            "experts.topk": size("num_experts_per_tok"),
        },
        fixed={**LLAMA_BLOCK, **NO_BIAS},
        pattern=LayerPattern(
            mixer="lightning_attention", full=lambda index, fields: index % 2 == 0, typed=True, sparse=always
        ),
        neutral=frozenset(f"{part}_{factor}_factor" for part in FACTORS for factor in ("alpha", "beta")),
    ),
}
