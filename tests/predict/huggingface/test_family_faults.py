"""Configs of models that are wrong or not modelled: each fault is told with its place and fix."""

from __future__ import annotations

from typing import Any

import pytest

from predict.huggingface.config_json import load_model, override
from sampling.errors import ConfigError
from tests.predict.huggingface.family_configs import COMMON, HYBRID, TINY, faults_of

HUGE = 10**6
WRONG: list[tuple[str, dict[str, Any], str, list[str]]] = [
    ("mixtral", {"num_experts_per_tok": 5}, "num_experts_per_tok", ["5", "num_local_experts", "4 or less"]),
    ("mixtral", {"num_local_experts": 0}, "num_local_experts", ["0", "from 1"]),
    ("mixtral", {"num_hidden_layers": HUGE}, "num_hidden_layers", ["1000000", "to 100000"]),
    ("deepseek_v3", {"num_nextn_predict_layers": HUGE}, "num_nextn_predict_layers", ["1000000", "from 0 to 16"]),
    ("mixtral", {"kv_lora_rank": 4}, "kv_lora_rank", ["latent attention", "deepseek_v2"]),
    ("mixtral", {"layer_types": ["linear_attention"]}, "layer_types", ["'linear_attention'", "qwen3_5"]),
    (
        "mistral",
        {"model_type": "llama", "layer_types": ["full_attention"] * 9},
        "layer_types",
        ["9 types for the 5 layers", "null"],
    ),
    (
        "mistral",
        {"model_type": "llama", "layer_types": "all"},
        "layer_types",
        ["'all' is not a list", "full_attention"],
    ),
    ("qwen3", {"layer_types": "all"}, "layer_types", ["not a list", "full_attention, sliding_attention"]),
    ("qwen3", {"layer_types": ["full_atention"] * 5}, "layer_types[0]", ["did you mean 'full_attention'"]),
    ("qwen3", {"layer_types": ["linear_attention"] * 5}, "layer_types[0]", ["'linear_attention'", "sliding_attention"]),
    ("qwen3", {"layer_types": ["sliding_attention"] * 5}, "layer_types", ["no window", "use_sliding_window"]),
    ("qwen3", {"layer_types": [[]] * 5}, "layer_types[0]", ["[]"]),
    ("qwen3_moe", {"mlp_only_layers": [5]}, "mlp_only_layers", ["5", "from 0 to 4"]),
    ("qwen3_moe", {"mlp_only_layers": 3}, "mlp_only_layers", ["not a list"]),
    ("qwen3_moe", {"decoder_sparse_step": 0}, "decoder_sparse_step", ["0", "from 1"]),
    ("qwen3_next", {"linear_num_value_heads": 3}, "linear_num_value_heads", ["linear_num_key_heads", "2 or 4"]),
    ("qwen3_next", {"partial_rotary_factor": 0}, "partial_rotary_factor", ["0", "above 0"]),
    (
        "qwen3_next",
        {"rope_parameters": {"partial_rotary_factor": "x"}},
        "rope_parameters.partial_rotary_factor",
        ["'x'"],
    ),
    ("qwen3_next", {"partial_rotary_factor": 0.2}, "partial_rotary_factor", ["3 of a head's 16", "even"]),
    ("qwen3_5", {"text_config": 3}, "text_config", ["3", "mapping"]),
    ("qwen3_5", {"hidden_size": 3}, "hidden_size", ["beside text_config", "put it into text_config"]),
    ("qwen3_5", {"quantization_config": {"bits": 4}}, "quantization_config", ["quantised"]),
    ("qwen3_5", {"text_config": {**COMMON, **HYBRID, "hidden_size": 0}}, "text_config.hidden_size", ["0", "range"]),
    ("qwen3_5", {"text_config": {"model_type": "llama"}}, "text_config.model_type", ["'llama'", "qwen3_5"]),
    ("mistral", {"text_config": {}}, "text_config", ["gemma3", "top level"]),
    ("deepseek_v3", {"num_key_value_heads": 3}, "num_key_value_heads", ["3", "set 6"]),
    ("deepseek_v3", {"qk_rope_head_dim": 3}, "qk_rope_head_dim", ["3", "even"]),
    ("deepseek_v3", {"moe_layer_freq": 2}, "moe_layer_freq", ["not modelled yet", "set it to 1"]),
    ("gemma2", {"attn_logit_softcapping": "hot"}, "attn_logit_softcapping", ["'hot'", "null"]),
    ("gemma2", {"use_bidirectional_attention": True}, "use_bidirectional_attention", ["later tokens", "false"]),
    ("gemma2", {"hidden_activation": "relu"}, "hidden_activation", ["'relu'", "not modelled yet"]),
    ("gpt_neox", {"rotary_pct": True}, "rotary_pct", ["true", "share"]),
    ("phi3", {"is_encoder_decoder": True}, "is_encoder_decoder", ["decoder-only"]),
    ("phi3", {"mlp_bias": True}, "mlp_bias", ["not part of phi3", "llama"]),
    ("phi3", {"mamba_d_state": 16}, "mamba_d_state", ["state-space"]),
    ("phi3", {"image_size": 224}, "image_size", ["vision"]),
]


@pytest.mark.parametrize(
    ("name", "changes", "path", "fragments"), WRONG, ids=[f"{n}-{w[2]}" for n, w in enumerate(WRONG)]
)
def test_a_wrong_value_is_told_with_its_place_and_fix(
    name: str, changes: dict[str, Any], path: str, fragments: list[str]
) -> None:
    told = [line for line in faults_of({**TINY[name], **changes}).splitlines() if f"model: {path}: " in line]
    assert any(all(fragment in line for fragment in fragments) for line in told), faults_of({**TINY[name], **changes})


@pytest.mark.parametrize(
    ("model_type", "fragments"),
    [
        ("qwen4", ["did you mean 'qwen3"]),
        ("mamba2", ["state-space layers would be needed"]),
        ("t5", ["an encoder with a decoder would be needed"]),
        ("phi", ["an output head with a bias", "did you mean 'phi3'"]),
    ],
)
def test_an_unknown_architecture_is_told_with_the_nearest_and_what_is_missing(
    model_type: str, fragments: list[str]
) -> None:
    told = faults_of({"model_type": model_type, "num_experts": 3, "add_cross_attention": True})
    assert all(fragment in told for fragment in (*fragments, "add_cross_attention: true"))
    assert "num_experts: " not in told


JUNK: tuple[Any, ...] = (None, 0, -1, True, "x", [], [1], [None], {}, {"a": 1}, 1.5, float("nan"), 10**30)


@pytest.mark.parametrize("name", TINY)
def test_whatever_a_key_holds_is_read_or_told(name: str) -> None:
    config = TINY[name]
    for key in {*config, "layer_types", "mlp_only_layers", "rope_parameters", "sliding_window", "text_config", 3}:
        for value in JUNK:
            given = {**config, key: value}
            override(given, "num_layers", 3)
            try:
                assert load_model(given).parameters > 0
            except ConfigError as told:
                assert str(told)


def test_faults_of_sizes_and_of_layers_are_told_at_once() -> None:
    told = faults_of({**TINY["qwen3"], "hidden_size": 0, "layer_types": ["linear_attention"]})
    assert [line.split(": ")[1] for line in told.splitlines()] == ["hidden_size", "layer_types[0]"]


@pytest.mark.parametrize(
    "key",
    [
        "mlp_type",
        "norm_type",
        "attention_type",
        "expert_map",
        "rope",
        "rope_fraction",
        "output_bias",
        "output_size",
        "return",
        "rms_norm_epz",
        "kv_dtype",
        "moe_init",
        "clip_qkv",
    ],
)
def test_keys_that_nobody_knows_are_refused_whatever_they_sound_like(key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key}: unknown key"):
        load_model({**TINY["llama"], key: 1})
