"""A small config of each model family, and what is said of a wrong one."""

from __future__ import annotations

from typing import Any

import pytest

from predict.huggingface.config_json import load_model
from sampling.errors import ConfigError

COMMON = {
    "hidden_size": 48,
    "num_hidden_layers": 5,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "vocab_size": 128,
    "intermediate_size": 80,
}
MOE = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
HYBRID = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
    "linear_conv_kernel_dim": 3,
    "head_dim": 16,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.25},
}
LATENT = {
    **COMMON,
    "num_key_value_heads": 6,
    "q_lora_rank": 12,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 10,
    "qk_rope_head_dim": 4,
    "v_head_dim": 6,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 20,
    "n_shared_experts": 2,
    "first_k_dense_replace": 2,
    "n_group": 1,
    "topk_group": 1,
}
STATE_SPACE = {
    "mamba_n_heads": 6,
    "mamba_d_head": 16,
    "mamba_n_groups": 2,
    "mamba_d_state": 10,
    "mamba_chunk_size": 8,
}
WITHOUT_FFN = {key: value for key, value in COMMON.items() if key != "intermediate_size"}
GPT2 = {"model_type": "gpt2", "n_embd": 48, "n_layer": 3, "n_head": 6, "n_positions": 32, "vocab_size": 128}
NEMOTRON = {
    "model_type": "nemotron_h",
    **{key: value for key, value in COMMON.items() if key != "num_hidden_layers"},
    "head_dim": 16,
    "mamba_num_heads": 4,
    "mamba_head_dim": 10,
    "n_groups": 2,
    "ssm_state_size": 6,
    "chunk_size": 8,
    "n_routed_experts": 6,
    "moe_intermediate_size": 24,
    "moe_shared_expert_intermediate_size": 40,
}
TINY: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", **COMMON},
    "llama-with-biases": {"model_type": "llama", **COMMON, "attention_bias": True, "mlp_bias": True},
    "llama-tied": {"model_type": "llama", **COMMON, "head_dim": 16, "tie_word_embeddings": True},
    "qwen2": {"model_type": "qwen2", **COMMON},
    "gemma": {"model_type": "gemma", **COMMON, "head_dim": 16},
    "starcoder2": {"model_type": "starcoder2", **COMMON},
    "granite": {"model_type": "granite", **COMMON},
    "granitemoe": {"model_type": "granitemoe", **COMMON, "num_local_experts": 4, "num_experts_per_tok": 2},
    "olmoe": {"model_type": "olmoe", **COMMON, "num_experts": 6, "num_experts_per_tok": 2},
    "glm4": {"model_type": "glm4", **COMMON, "head_dim": 8, "pad_token_id": 0},
    "exaone4": {"model_type": "exaone4", **COMMON},
    "hunyuan_v1_dense": {"model_type": "hunyuan_v1_dense", **COMMON, "head_dim": 8},
    "arcee": {"model_type": "arcee", **COMMON, "head_dim": 8},
    "gpt2": GPT2,
    "gpt2-narrow": {**GPT2, "n_inner": 72},
    "mistral": {"model_type": "mistral", **COMMON},
    "mixtral": {"model_type": "mixtral", **COMMON, "num_local_experts": 4, "num_experts_per_tok": 2},
    "mixtral-window": {
        "model_type": "mixtral",
        **COMMON,
        "num_local_experts": 4,
        "num_experts_per_tok": 3,
        "head_dim": 10,
        "sliding_window": 16,
    },
    "phi3": {"model_type": "phi3", **COMMON, "pad_token_id": 0, "sliding_window": 7},
    "qwen2-window": {"model_type": "qwen2", **COMMON, "use_sliding_window": True, "max_window_layers": 2},
    "qwen2_moe": {"model_type": "qwen2_moe", **COMMON, **MOE, "shared_expert_intermediate_size": 40},
    "qwen2_moe-mixed": {
        "model_type": "qwen2_moe",
        **COMMON,
        **MOE,
        "shared_expert_intermediate_size": 40,
        "decoder_sparse_step": 2,
        "mlp_only_layers": [3],
        "qkv_bias": False,
        "use_sliding_window": True,
        "max_window_layers": 4,
    },
    "qwen3": {"model_type": "qwen3", **COMMON, "head_dim": 16, "attention_bias": True},
    "qwen3-named": {
        "model_type": "qwen3",
        **COMMON,
        "head_dim": 16,
        "use_sliding_window": True,
        "layer_types": ["full_attention", "sliding_attention", "full_attention", "full_attention", "sliding_attention"],
    },
    "qwen3_moe": {"model_type": "qwen3_moe", **COMMON, **MOE, "head_dim": 16, "mlp_only_layers": [0, 4]},
    "qwen3_next": {
        "model_type": "qwen3_next",
        **COMMON,
        **MOE,
        **HYBRID,
        "shared_expert_intermediate_size": 40,
        "mlp_only_layers": [1],
        "attention_bias": True,
    },
    "qwen3_5": {"model_type": "qwen3_5", "text_config": {**COMMON, **HYBRID}},
    "qwen3_5_text": {"model_type": "qwen3_5_text", **COMMON, **HYBRID, "full_attention_interval": 2},
    "qwen3_5_moe": {
        "model_type": "qwen3_5_moe",
        "text_config": {**WITHOUT_FFN, **MOE, **HYBRID, "shared_expert_intermediate_size": 40},
    },
    "deepseek_v2": {"model_type": "deepseek_v2", **LATENT},
    "deepseek_v2-lite": {"model_type": "deepseek_v2", **LATENT, "q_lora_rank": None, "attention_bias": True},
    "deepseek_v3": {"model_type": "deepseek_v3", **LATENT, "attention_bias": True, "num_nextn_predict_layers": 1},
    "gpt_oss": {"model_type": "gpt_oss", **COMMON, "head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2},
    "gpt_oss-without-bias": {
        "model_type": "gpt_oss",
        **COMMON,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "attention_bias": False,
    },
    "gemma2": {"model_type": "gemma2", **COMMON, "head_dim": 16},
    "gemma3_text": {"model_type": "gemma3_text", **COMMON, "head_dim": 16, "sliding_window_pattern": 2},
    "gemma3": {"model_type": "gemma3", "text_config": {**COMMON, "num_hidden_layers": 7}},
    "olmo2": {"model_type": "olmo2", **COMMON, "attention_bias": True},
    "glm4_moe": {
        "model_type": "glm4_moe",
        **COMMON,
        "head_dim": 16,
        "attention_bias": True,
        "use_qk_norm": True,
        "n_routed_experts": 8,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 20,
        "n_shared_experts": 2,
        "first_k_dense_replace": 2,
        "num_nextn_predict_layers": 1,
    },
    "kimi_k2": {"model_type": "kimi_k2", **LATENT},
    "glm4_moe_lite": {
        "model_type": "glm4_moe_lite",
        **{key: value for key, value in LATENT.items() if key != "first_k_dense_replace"},
        "mlp_layer_types": ["dense", "sparse", "dense", "sparse", "sparse"],
    },
    "glm_moe_dsa": {"model_type": "glm_moe_dsa", **LATENT, "index_n_heads": 4, "index_head_dim": 8, "index_topk": 16},
    "seed_oss": {"model_type": "seed_oss", **COMMON, "head_dim": 16, "mlp_bias": True},
    "smollm3": {"model_type": "smollm3", **COMMON, "pad_token_id": 0, "attention_bias": True},
    "ernie4_5": {"model_type": "ernie4_5", **COMMON, "tie_word_embeddings": False},
    "ernie4_5_moe": {
        "model_type": "ernie4_5_moe",
        **COMMON,
        "moe_num_experts": 6,
        "moe_k": 2,
        "moe_intermediate_size": 24,
        "moe_layer_start_index": 1,
        "moe_layer_end_index": 3,
        "moe_layer_interval": 2,
    },
    "minimax_m2": {
        "model_type": "minimax_m2",
        **COMMON,
        "head_dim": 16,
        "rotary_dim": 8,
        "num_local_experts": 6,
        "num_experts_per_tok": 2,
    },
    "nemotron_h": {
        **NEMOTRON,
        "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp", "linear_attention"],
    },
    "nemotron_h-latent": {**NEMOTRON, "layers_block_type": ["moe", "linear_attention"], "moe_latent_size": 16},
    "granitemoehybrid": {
        "model_type": "granitemoehybrid",
        **COMMON,
        "layer_types": ["linear_attention", "full_attention", "linear_attention", "full_attention", "linear_attention"],
        "shared_intermediate_size": 40,
        "num_local_experts": 6,
        **STATE_SPACE,
    },
    "granitemoehybrid-dense": {
        "model_type": "granitemoehybrid",
        **COMMON,
        "layer_types": ["full_attention"] * 5,
        "position_embedding_type": "rope",
        "num_local_experts": 0,
        **STATE_SPACE,
    },
    "bamba": {"model_type": "bamba", **COMMON, "attn_layer_indices": [1, 3], **STATE_SPACE},
    "lfm2": {
        "model_type": "lfm2",
        **COMMON,
        "layer_types": ["conv", "full_attention", "conv", "conv", "full_attention"],
        "block_multiple_of": 16,
    },
    "lfm2_moe": {
        "model_type": "lfm2_moe",
        **COMMON,
        **MOE,
        "layer_types": ["conv", "full_attention", "conv", "conv", "full_attention"],
    },
    "olmo3": {"model_type": "olmo3", **COMMON, "sliding_window": 16},
    "ministral3": {"model_type": "ministral3", **COMMON, "head_dim": 16},
    "mistral3": {"model_type": "mistral3", "text_config": {"model_type": "mistral", **COMMON, "head_dim": 16}},
    "gpt_neox": {
        **{key: value for key, value in COMMON.items() if key != "num_key_value_heads"},
        "model_type": "gpt_neox",
        "rotary_pct": 0.25,
    },
    "gpt_neox-in-turn": {
        **{key: value for key, value in COMMON.items() if key != "num_key_value_heads"},
        "model_type": "gpt_neox",
        "rotary_pct": 1,
        "use_parallel_residual": False,
        "attention_bias": False,
    },
}

IN_TRANSFORMERS = {"kimi_k2": "deepseek_v3"}
"""Families that transformers runs under another name: Kimi K2's `config.json` names DeepseekV3ForCausalLM."""


def faults_of(config: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        load_model(config)
    return str(caught.value)


def transformers_config(config: dict[str, Any]) -> Any:
    """The library's configuration of the text decoder."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed: no count to compare with")
    keys = {key: value for key, value in config.items() if key not in ("model_type", "architectures")}
    try:
        whole = transformers.AutoConfig.for_model(
            IN_TRANSFORMERS.get(config["model_type"], config["model_type"]), **keys
        )
    except ValueError:
        pytest.skip(f"this transformers does not know {config['model_type']}")
    return getattr(whole, "text_config", whole)


def transformers_count(config: dict[str, Any]) -> int:
    """Parameters of the model that transformers builds, on the meta device, shared ones once."""
    decoder = transformers_config(config)
    import torch
    import transformers

    with torch.device("meta"):
        built = transformers.AutoModelForCausalLM.from_config(decoder)
    return sum(weight.numel() for weight in {id(weight): weight for weight in built.parameters()}.values())


HUGE = 10**6

WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("mixtral", {"num_experts_per_tok": 5}, "num_experts_per_tok"),
    ("mixtral", {"num_local_experts": 0}, "num_local_experts"),
    ("mixtral", {"num_hidden_layers": HUGE}, "num_hidden_layers"),
    ("deepseek_v3", {"num_nextn_predict_layers": HUGE}, "num_nextn_predict_layers"),
    ("mixtral", {"kv_lora_rank": 4}, "kv_lora_rank"),
    ("mixtral", {"layer_types": ["linear_attention"]}, "layer_types"),
    ("mistral", {"model_type": "llama", "layer_types": ["full_attention"] * 9}, "layer_types"),
    ("mistral", {"model_type": "llama", "layer_types": "all"}, "layer_types"),
    ("qwen3", {"layer_types": "all"}, "layer_types"),
    ("qwen3", {"layer_types": ["full_atention"] * 5}, "layer_types[0]"),
    ("qwen3", {"layer_types": ["linear_attention"] * 5}, "layer_types[0]"),
    ("qwen3", {"layer_types": ["sliding_attention"] * 5}, "layer_types"),
    ("qwen3", {"layer_types": [[]] * 5}, "layer_types[0]"),
    ("qwen3_moe", {"mlp_only_layers": [5]}, "mlp_only_layers"),
    ("qwen3_moe", {"mlp_only_layers": 3}, "mlp_only_layers"),
    ("qwen3_moe", {"decoder_sparse_step": 0}, "decoder_sparse_step"),
    ("qwen3_next", {"linear_num_value_heads": 3}, "linear_num_value_heads"),
    ("qwen3_next", {"partial_rotary_factor": 0}, "partial_rotary_factor"),
    ("qwen3_next", {"rope_parameters": {"partial_rotary_factor": "x"}}, "rope_parameters.partial_rotary_factor"),
    ("qwen3_next", {"partial_rotary_factor": 0.2}, "partial_rotary_factor"),
    ("qwen3_5", {"text_config": 3}, "text_config"),
    ("qwen3_5", {"hidden_size": 3}, "hidden_size"),
    ("qwen3_5", {"quantization_config": {"bits": 4}}, "quantization_config"),
    ("qwen3_5", {"text_config": {**COMMON, **HYBRID, "hidden_size": 0}}, "text_config.hidden_size"),
    ("qwen3_5", {"text_config": {"model_type": "llama"}}, "text_config.model_type"),
    ("mistral", {"text_config": {}}, "text_config"),
    ("deepseek_v3", {"num_key_value_heads": 3}, "num_key_value_heads"),
    ("deepseek_v3", {"qk_rope_head_dim": 3}, "qk_rope_head_dim"),
    ("deepseek_v3", {"moe_layer_freq": 2}, "moe_layer_freq"),
    ("gemma2", {"attn_logit_softcapping": "hot"}, "attn_logit_softcapping"),
    ("gemma2", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
    ("gemma2", {"hidden_activation": "relu"}, "hidden_activation"),
    ("gpt_neox", {"rotary_pct": True}, "rotary_pct"),
    ("phi3", {"is_encoder_decoder": True}, "is_encoder_decoder"),
    ("phi3", {"mlp_bias": True}, "mlp_bias"),
    ("phi3", {"mamba_d_state": 16}, "mamba_d_state"),
    ("phi3", {"image_size": 224}, "image_size"),
]
