"""Configs of models that are wrong or not modelled: each fault is reported with its place and fix."""

from typing import Any

import pytest

from predict.huggingface.config_json import load_model
from sampling.errors import ConfigError
from tests.predict.huggingface.family_configs import TINY, WRONG, faults_of


@pytest.mark.parametrize(("name", "changes", "path"), WRONG, ids=[f"{n}-{w[2]}" for n, w in enumerate(WRONG)])
def test_the_key_of_a_wrong_value_is_blamed(name: str, changes: dict[str, Any], path: str) -> None:
    assert f"model: {path}: " in faults_of({**TINY[name], **changes})


@pytest.mark.parametrize(
    ("model_type", "fragments"),
    [
        ("qwen4", ["did you mean 'qwen3"]),
        ("mamba2", ["state-space layers would be needed"]),
        ("bart", ["an encoder with a decoder would be needed"]),
        ("phi", ["an output head with a bias", "did you mean 'phi3'"]),
    ],
)
def test_an_unknown_architecture_is_reported_with_the_nearest_and_what_is_missing(
    model_type: str, fragments: list[str]
) -> None:
    message = faults_of({"model_type": model_type, "num_experts": 3, "add_cross_attention": True})
    assert all(fragment in message for fragment in (*fragments, "add_cross_attention: true"))
    assert "num_experts: " not in message


def test_faults_of_sizes_and_of_layers_are_reported_at_once() -> None:
    message = faults_of({**TINY["qwen3"], "hidden_size": 0, "layer_types": ["linear_attention"]})
    assert [line.split(": ")[1] for line in message.splitlines()] == ["hidden_size", "layer_types[0]"]


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
