"""Model FLOPs a token: closed forms, and the counts of verl and of Qwen3.5's oracle in their own conventions."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from predict.ledger.flops import attention_flops_per_token, model_flops_per_token
from predict.model.families import FAMILIES
from predict.model.spec import ModelSpec
from sampling.files.places import CONFIGS
from tests.needs import SHARED, needs_table

ORACLES = SHARED / "oracles" / "flops"
MODELS = CONFIGS / "models"


def _oracle(name: str) -> Any:
    return json.loads((ORACLES / name).read_text())


def _shipped(name: str) -> ModelSpec:
    return ModelSpec.from_hf_config(MODELS / f"{name}.json")


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


@needs_table("oracles/flops")
def test_verl_counts_the_same() -> None:
    compared = []
    for case in _oracle("verl.json")["cases"]:
        if not _is_of_text_we_read(case):
            continue
        config = case["config"]
        spec = ModelSpec.from_hf_config(config)
        assert _verl(spec, case["batch_seqlens"]) == pytest.approx(case["flops_fwd_bwd"], rel=1e-9), case["name"]
        compared.append(config["model_type"])
    expected = "deepseek_v3 gemma3_text gpt_oss llama mistral qwen2 qwen3 qwen3_5_moe qwen3_moe"
    assert " ".join(sorted(set(compared))) == expected


@needs_table("oracles/flops")
def test_qwen3_5_counts_the_same_beside_its_recurrence() -> None:
    spec = _shipped("qwen3.5-35b-a3b")
    oracle = _oracle("qwen35.json")
    assert spec.active_parameters == oracle["param_active"]
    for case in oracle["cases"]:
        lengths = case["batch_seqlens"]
        if isinstance(lengths, dict):
            lengths = [lengths["length"]] * lengths["sequences"]
        parts = case["proposed"]
        matrices = parts["total_fwd"] - parts["gdn_core"] - parts["attn_core"]
        linear = spec.linear
        assert linear is not None
        recurrence = 30 * 15 * linear.value_heads * linear.key_dim * linear.value_dim
        ours = sum(
            length * (model_flops_per_token(spec, length) - attention_flops_per_token(spec, length) - recurrence)
            for length in lengths
        )
        assert ours == pytest.approx(3 * matrices, rel=1e-12)
        causal = sum(length * attention_flops_per_token(spec, length) / 2 * (length + 1) / length for length in lengths)
        assert causal == pytest.approx(3 * parts["attn_core"], rel=1e-12)


def test_a_dense_model_keeps_palms_formula() -> None:
    spec = _shipped("llama3-8b")
    embedding_and_norms = spec.embedding_parameters + 65 * spec.norm_parameters
    expected = 6.0 * (spec.parameters - embedding_and_norms) + 12.0 * 32 * 4096 * 8192
    assert model_flops_per_token(spec, 8192) == expected


def test_a_window_bounds_attention() -> None:
    spec = _shipped("mistral-7b")
    full = replace(spec, layer_kinds=(), window=0)
    assert model_flops_per_token(spec, 2048) == model_flops_per_token(full, 2048)
    assert attention_flops_per_token(spec, 16384) == attention_flops_per_token(full, 4096)
    assert attention_flops_per_token(_shipped("gemma3-27b"), 8192) == 12.0 * 4096 * (52 * 1024 + 10 * 8192)


def test_latent_attention_counts_its_own_widths() -> None:
    spec = _shipped("deepseek-v3")
    assert attention_flops_per_token(spec, 4096) == 6.0 * 4096 * 128 * (128 + 64 + 128) * 61


def test_of_the_experts_those_a_token_sees_are_counted() -> None:
    spec = _shipped("mixtral-8x7b")
    assert spec.experts is not None
    one_more = replace(spec, experts=replace(spec.experts, topk=3))
    more = model_flops_per_token(one_more, 1024) - model_flops_per_token(spec, 1024)
    assert more == 6.0 * 32 * 3 * 4096 * 14336
    many = replace(spec, experts=replace(spec.experts, count=9))
    assert model_flops_per_token(many, 1024) - model_flops_per_token(spec, 1024) == 6.0 * 32 * 4096
