"""Architectures that are known but not modelled, and names that keys have in other tools."""

from __future__ import annotations

from collections.abc import Mapping

UNMODELLED: Mapping[str, str] = {
    "t5": "an encoder with a decoder",
    "bart": "an encoder with a decoder",
    "whisper": "an encoder with a decoder",
    "bert": "bidirectional attention",
    "vit": "a vision encoder without a decoder",
    "siglip_vision_model": "a vision encoder without a decoder",
    "clip": "a vision encoder without a decoder",
    "mamba": "state-space layers",
    "mamba2": "state-space layers",
    "falcon_mamba": "state-space layers",
    "jamba": "state-space layers",
    "zamba2": "state-space layers",
    "bamba": "state-space layers",
    "nemotron_h": "state-space layers",
    "granitemoehybrid": "state-space layers",
    "mllama": "cross-attention",
    "bloom": "positions by ALiBi",
    "mpt": "positions by ALiBi",
    "phi": "an output head with a bias",
    "llama4": "attention in chunks",
    "llama4_text": "attention in chunks",
    "gemma3n": "layers that share keys and values",
    "deepseek_v32": "attention over tokens that an indexer picks",
    "glm_moe_dsa": "attention over tokens that an indexer picks",
    "kimi_linear": "Kimi delta attention",
    "olmo": "norms without weights",
    "minimax": "lightning attention",
}
"""Architectures that are known, and what of them is missing here."""

OTHER_NAMES: Mapping[str, str] = {
    "num_hidden_layers": "layers",
    "num_layers": "layers",
    "hidden_size": "hidden",
    "num_attention_heads": "heads",
    "num_key_value_heads": "kv_heads",
    "num_query_groups": "kv_heads",
    "kv_channels": "head_dim",
    "intermediate_size": "ffn",
    "ffn_hidden_size": "ffn",
    "max_position_embeddings": "max_positions",
    "hidden_act": "activation",
    "num_local_experts": "experts.count",
    "num_experts": "experts.count",
    "n_routed_experts": "experts.count",
    "num_experts_per_tok": "experts.topk",
    "experts_per_token": "experts.topk",
    "moe_router_topk": "experts.topk",
    "moe_ffn_hidden_size": "experts.ffn",
    "moe_shared_expert_intermediate_size": "experts.shared_ffn",
    "num_mtp_layers": "mtp_layers",
    "mtp_num_layers": "mtp_layers",
}
"""Names that stand for a family's own: those that `transformers` maps (`attribute_map`), and Megatron's."""
