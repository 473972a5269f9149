"""The architectures that a Hugging Face `config.json` may describe, by `model_type`: which key says what.

Names and defaults are those of the `transformers` configuration classes. Dropout is taken as 0, as pre-training sets it. Of a
vision-language model the text decoder is read (`text_config`), and its vision tower is left out.
"""

from __future__ import annotations

from collections.abc import Mapping

from predict.model.family import (
    GATED_ACTIVATIONS,
    MOST_LAYERS,
    PLAIN_ACTIVATIONS,
    Family,
    Layout,
    Number,
    activation,
    after_dense,
    always,
    before_windows,
    last_of_interval,
    last_of_step,
    never,
    second_or_beyond_windows,
    size,
    switch,
)
from sampling.files.keys import Key, Scalar

SIZES: Mapping[str, Key] = {
    "layers": size("num_hidden_layers", maximum=MOST_LAYERS),
    "hidden": size("hidden_size"),
    "heads": size("num_attention_heads"),
    "ffn": size("intermediate_size"),
    "vocab": size("vocab_size"),
    "max_positions": size("max_position_embeddings", required=False),
}
LLAMA_LIKE: Mapping[str, Key] = {
    **SIZES,
    "kv_heads": size("num_key_value_heads", nullable=True),
    "head_dim": size("head_dim", required=False, nullable=True),
    "activation": activation("hidden_act", GATED_ACTIVATIONS, "silu"),
    "tied": switch("tie_word_embeddings", False),
}
LLAMA_BLOCK: Mapping[str, Scalar] = {"gated": True, "norm": "rms", "rope": True}
NO_BIAS: Mapping[str, Scalar] = {"attention_bias": False, "mlp_bias": False}
PLAIN_BLOCK: Mapping[str, Scalar] = {"gated": False, "norm": "layer", "mlp_bias": True}

ATTENTION_BIAS = switch("attention_bias", False)
QUARTER_ROTARY = Number(names=("partial_rotary_factor",), default=0.25)
WINDOW = size("sliding_window", required=False, nullable=True, minimum=0)
SWITCHED_WINDOW: Mapping[str, Key] = {
    "layout.window": size("sliding_window", default=4096, nullable=True, minimum=0),
    "layout.windowed": switch("use_sliding_window", False),
}
QWEN_WINDOW: Mapping[str, Key] = {
    **SWITCHED_WINDOW,
    "layout.full_before": size("max_window_layers", default=28, minimum=0),
}
QWEN_LAYOUT = Layout(mixer="sliding", full=before_windows, typed=True)
EVERY_LAYER_SLIDES = Layout(mixer="sliding", full=never)
SPARSE_BY_STEP: Mapping[str, Key] = {"layout.step": size("decoder_sparse_step", default=1)}
QWEN_EXPERTS: Mapping[str, Key] = {
    "experts.count": size("num_experts"),
    "experts.topk": size("num_experts_per_tok"),
    "experts.ffn": size("moe_intermediate_size"),
}
SHARED_EXPERT = size("shared_expert_intermediate_size", minimum=0)
HYBRID: Mapping[str, Key] = {
    **LLAMA_LIKE,
    "head_dim": size("head_dim", default=256),
    "attention_bias": ATTENTION_BIAS,
    "query_gate": switch("attn_output_gate", True),
    "mtp_layers": size("mtp_num_hidden_layers", default=0, minimum=0),
    "linear.key_heads": size("linear_num_key_heads"),
    "linear.value_heads": size("linear_num_value_heads"),
    "linear.key_dim": size("linear_key_head_dim"),
    "linear.value_dim": size("linear_value_head_dim"),
    "linear.conv": size("linear_conv_kernel_dim"),
    "layout.interval": size("full_attention_interval", default=4),
}
"""Qwen3-Next and its successors: three linear layers, then one of full attention."""
HYBRID_BLOCK: Mapping[str, Scalar] = {**LLAMA_BLOCK, "mlp_bias": False, "qk_norm": True}
DEEPSEEK: Mapping[str, Key] = {
    **{name: key for name, key in LLAMA_LIKE.items() if name != "head_dim"},
    "kv_heads": size("num_key_value_heads", required=False, nullable=True),
    "attention_bias": ATTENTION_BIAS,
    "latent.q_rank": size("q_lora_rank", nullable=True),
    "latent.kv_rank": size("kv_lora_rank"),
    "latent.nope_dim": size("qk_nope_head_dim"),
    "latent.rope_dim": size("qk_rope_head_dim"),
    "latent.value_dim": size("v_head_dim"),
    "experts.count": size("n_routed_experts"),
    "experts.topk": size("num_experts_per_tok"),
    "experts.ffn": size("moe_intermediate_size"),
    "experts.shared_count": size("n_shared_experts", default=0, nullable=True, minimum=0),
    "layout.dense_before": size("first_k_dense_replace", default=0, minimum=0),
    "mtp_layers": size("num_nextn_predict_layers", default=0, minimum=0),
}
DEEPSEEK_FAMILY = Family(
    keys=DEEPSEEK,
    fixed={**LLAMA_BLOCK, "mlp_bias": False},
    layout=Layout(sparse=after_dense),
    neutral=frozenset({"head_dim", "qk_head_dim"}),
)
GEMMA: Mapping[str, Key] = {
    **LLAMA_LIKE,
    "heads": size("num_attention_heads", default=8),
    "kv_heads": size("num_key_value_heads", default=4),
    "head_dim": size("head_dim", default=256),
    "activation": activation("hidden_activation", PLAIN_ACTIVATIONS, "gelu_pytorch_tanh"),
    "tied": switch("tie_word_embeddings", True),
    "attention_bias": ATTENTION_BIAS,
    "layout.window": size("sliding_window", default=4096, nullable=True, minimum=0),
}
GEMMA_BLOCK: Mapping[str, Scalar] = {**LLAMA_BLOCK, "mlp_bias": False, "norms_a_layer": 4}
ALTERNATING = Layout(mixer="sliding", full=last_of_interval, typed=True)


def _caps(attention: float | None, logits: float | None) -> Mapping[str, Number]:
    return {
        "attention_cap": Number(names=("attn_logit_softcapping",), default=attention),
        "logit_cap": Number(names=("final_logit_softcapping",), default=logits),
    }


GEMMA3 = Family(
    keys={
        **GEMMA,
        "vocab": size("vocab_size", default=262_208),
        "layout.interval": size("sliding_window_pattern", default=6),
    },
    fixed={**GEMMA_BLOCK, "qk_norm": True},
    layout=ALTERNATING,
    caps=_caps(None, None),
    nested=True,
)
QWEN3_5 = Family(
    keys=HYBRID,
    fixed=HYBRID_BLOCK,
    layout=Layout(mixer="linear", full=last_of_interval, typed=True),
    rotary=QUARTER_ROTARY,
    nested=True,
)
QWEN3_5_MOE = Family(
    keys={
        **{name: key for name, key in HYBRID.items() if name != "ffn"},
        **QWEN_EXPERTS,
        "experts.shared_ffn": SHARED_EXPERT,
    },
    fixed={**HYBRID_BLOCK, "ffn": 0, "experts.shared_gate": True},
    layout=Layout(mixer="linear", full=last_of_interval, typed=True, sparse=always),
    rotary=QUARTER_ROTARY,
    neutral=frozenset({"intermediate_size"}),
    nested=True,
)

FAMILIES: Mapping[str, Family] = {
    "llama": Family(
        keys={
            **LLAMA_LIKE,
            "kv_heads": size("num_key_value_heads", required=False, nullable=True),
            "attention_bias": ATTENTION_BIAS,
            "mlp_bias": switch("mlp_bias", False),
        },
        fixed=LLAMA_BLOCK,
    ),
    "mistral": Family(
        keys={**LLAMA_LIKE, "layout.window": size("sliding_window", default=4096, nullable=True, minimum=0)},
        fixed={**LLAMA_BLOCK, **NO_BIAS},
        layout=EVERY_LAYER_SLIDES,
    ),
    "mixtral": Family(
        keys={
            **LLAMA_LIKE,
            "layout.window": WINDOW,
            "experts.count": size("num_local_experts"),
            "experts.topk": size("num_experts_per_tok"),
        },
        fixed={**LLAMA_BLOCK, **NO_BIAS},
        layout=Layout(mixer="sliding", full=never, sparse=always),
    ),
    "phi3": Family(
        keys={
            **{name: key for name, key in LLAMA_LIKE.items() if name != "head_dim"},
            "kv_heads": size("num_key_value_heads", required=False, nullable=True),
            "layout.window": WINDOW,
        },
        fixed={**LLAMA_BLOCK, **NO_BIAS},
        layout=EVERY_LAYER_SLIDES,
        rotary=Number(names=("partial_rotary_factor",), default=1.0),
        neutral=frozenset({"original_max_position_embeddings"}),
    ),
    "qwen2": Family(
        keys={**LLAMA_LIKE, **QWEN_WINDOW},
        fixed={**LLAMA_BLOCK, "attention_bias": True, "qkv_bias_only": True, "mlp_bias": False},
        layout=QWEN_LAYOUT,
    ),
    "qwen2_moe": Family(
        keys={
            **LLAMA_LIKE,
            **SWITCHED_WINDOW,
            **QWEN_EXPERTS,
            **SPARSE_BY_STEP,
            "attention_bias": switch("qkv_bias", True),
            "experts.shared_ffn": SHARED_EXPERT,
            "layout.full_from": size("max_window_layers", default=28, minimum=0),
        },
        fixed={**LLAMA_BLOCK, "qkv_bias_only": True, "mlp_bias": False, "experts.shared_gate": True},
        layout=Layout(
            mixer="sliding", full=second_or_beyond_windows, typed=True, sparse=last_of_step, dense_named=True
        ),
    ),
    "qwen3": Family(
        keys={
            **LLAMA_LIKE,
            **QWEN_WINDOW,
            "head_dim": size("head_dim", default=128),
            "attention_bias": ATTENTION_BIAS,
        },
        fixed={**LLAMA_BLOCK, "mlp_bias": False, "qk_norm": True},
        layout=QWEN_LAYOUT,
    ),
    "qwen3_moe": Family(
        keys={
            **LLAMA_LIKE,
            **SWITCHED_WINDOW,
            **QWEN_EXPERTS,
            **SPARSE_BY_STEP,
            "ffn": size("intermediate_size", default=6144),
            "attention_bias": ATTENTION_BIAS,
        },
        fixed={**LLAMA_BLOCK, "mlp_bias": False, "qk_norm": True},
        layout=Layout(mixer="sliding", full=never, sparse=last_of_step, dense_named=True),
        neutral=frozenset({"max_window_layers"}),
    ),
    "qwen3_next": Family(
        keys={
            **HYBRID,
            **QWEN_EXPERTS,
            **SPARSE_BY_STEP,
            "ffn": size("intermediate_size", default=5632),
            "experts.shared_ffn": SHARED_EXPERT,
        },
        fixed={**HYBRID_BLOCK, "experts.shared_gate": True},
        layout=Layout(mixer="linear", full=last_of_interval, typed=True, sparse=last_of_step, dense_named=True),
        rotary=QUARTER_ROTARY,
    ),
    "qwen3_5": QWEN3_5,
    "qwen3_5_text": QWEN3_5,
    "qwen3_5_moe": QWEN3_5_MOE,
    "qwen3_5_moe_text": QWEN3_5_MOE,
    "deepseek_v2": DEEPSEEK_FAMILY,
    "deepseek_v3": DEEPSEEK_FAMILY,
    "gpt_oss": Family(
        keys={
            **LLAMA_LIKE,
            "head_dim": size("head_dim", default=64),
            "attention_bias": switch("attention_bias", True),
            "layout.window": size("sliding_window", default=128, nullable=True, minimum=0),
            "experts.count": size("num_local_experts"),
            "experts.topk": size("num_experts_per_tok"),
        },
        fixed={
            **LLAMA_BLOCK,
            "mlp_bias": False,
            "sinks": True,
            "layout.interval": 2,
            "experts.bias": True,
            "experts.router_bias": True,
        },
        layout=Layout(mixer="sliding", full=last_of_interval, typed=True, sparse=always),
        neutral=frozenset({"swiglu_alpha", "swiglu_limit", "initial_context_length"}),
    ),
    "gemma2": Family(
        keys=GEMMA,
        fixed={**GEMMA_BLOCK, "layout.interval": 2},
        layout=ALTERNATING,
        caps=_caps(50.0, 30.0),
    ),
    "gemma3": GEMMA3,
    "gemma3_text": GEMMA3,
    "gpt2": Family(
        keys={
            "layers": size("n_layer", maximum=MOST_LAYERS),
            "hidden": size("n_embd"),
            "heads": size("n_head"),
            "ffn": size("n_inner", required=False, nullable=True),
            "vocab": size("vocab_size"),
            "max_positions": size("n_positions"),
            "activation": activation("activation_function", PLAIN_ACTIVATIONS, "gelu_new"),
            "tied": switch("tie_word_embeddings", True),
        },
        fixed={**PLAIN_BLOCK, "rope": False, "attention_bias": True},
    ),
    "gpt_neox": Family(
        keys={
            **SIZES,
            "activation": activation("hidden_act", PLAIN_ACTIVATIONS, "gelu"),
            "attention_bias": switch("attention_bias", True),
            "tied": switch("tie_word_embeddings", False),
            "parallel_residual": switch("use_parallel_residual", True),
        },
        fixed={**PLAIN_BLOCK, "rope": True},
        rotary=Number(names=("rotary_pct", "partial_rotary_factor"), default=0.25),
    ),
}

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
