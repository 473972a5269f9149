"""Model FLOPs per token equal those that verl and a count of Qwen3.5 state, each in its own convention."""

from __future__ import annotations

import json
from typing import Any

import pytest

from predict.huggingface.config_json import load_model
from predict.huggingface.families import FAMILIES
from predict.layers.linear import LinearAttention
from predict.model.spec import ModelSpec
from predict.run.model_flops import attention_flops_per_token, model_flops_per_token
from sampling.files.places import CONFIGS
from tests.oracles.shared import SHARED

ORACLES = SHARED / "oracles" / "flops"


def _oracle(name: str) -> Any:
    return json.loads((ORACLES / name).read_text())


def _verl(spec: ModelSpec, lengths: list[int]) -> float:
    """Ours in verl's convention: attention halved for causality, and the embedding look-up a matrix like the head."""
    look_up = 6.0 * spec.vocab * spec.hidden

    def of(length: int) -> float:
        return model_flops_per_token(spec, length) - attention_flops_per_token(spec, length) / 2 + look_up

    return sum(length * of(length) for length in lengths)


def _is_of_text_we_read(case: dict[str, Any]) -> bool:
    """Not an architecture that is refused, one mislabelled on purpose, or one whose vision tower is counted too."""
    config = case["config"]
    return config["model_type"] in FAMILIES and "WRONG" not in case["name"] and "vision_config" not in config


def test_verl_counts_the_same() -> None:
    compared = []
    for case in _oracle("verl.json")["cases"]:
        if not _is_of_text_we_read(case):
            continue
        config = case["config"]
        spec = load_model(config)
        assert _verl(spec, case["batch_seqlens"]) == pytest.approx(case["flops_fwd_bwd"], rel=1e-9), case["name"]
        compared.append(config["model_type"])
    expected = "deepseek_v3 gemma3_text gpt_oss llama mistral qwen2 qwen3 qwen3_5_moe qwen3_moe"
    assert " ".join(sorted(set(compared))) == expected


def test_qwen3_5_counts_the_same_beside_its_recurrence() -> None:
    spec = load_model(CONFIGS / "models" / "qwen3.5-35b-a3b.json")
    oracle = _oracle("qwen35.json")
    assert spec.active_parameters == oracle["param_active"]
    for case in oracle["cases"]:
        lengths = case["batch_seqlens"]
        if isinstance(lengths, dict):
            lengths = [lengths["length"]] * lengths["sequences"]
        parts = case["proposed"]
        matrices = parts["total_fwd"] - parts["gdn_core"] - parts["attn_core"]
        linear = spec.mixer(spec.kinds()[0])
        assert isinstance(linear, LinearAttention)
        recurrence = 30 * 15 * linear.value_heads * linear.key_dim * linear.value_dim
        ours = sum(
            length * (model_flops_per_token(spec, length) - attention_flops_per_token(spec, length) - recurrence)
            for length in lengths
        )
        assert ours == pytest.approx(3 * matrices, rel=1e-12)
        causal = sum(length * attention_flops_per_token(spec, length) / 2 * (length + 1) / length for length in lengths)
        assert causal == pytest.approx(3 * parts["attn_core"], rel=1e-12)
