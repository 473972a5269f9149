"""Model FLOPs per token equal closed forms."""

from dataclasses import replace

from predict.huggingface.config_json import load_model
from predict.model.spec import ModelSpec
from predict.run.model_flops import attention_flops_per_token, model_flops_per_token
from sampling.files.places import CONFIGS

MODELS = CONFIGS / "models"


def _shipped(name: str) -> ModelSpec:
    return load_model(MODELS / f"{name}.json")


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
