"""A model's shape gives its parameters: those of the model cards, and those that transformers counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from predict.huggingface.config_json import load_model
from predict.model.spec import DENSE
from sampling.errors import ConfigError
from sampling.files.places import CONFIGS

MODELS = CONFIGS / "models"
LLAMA_405B = {
    "model_type": "llama",
    "hidden_size": 16384,
    "intermediate_size": 53248,
    "num_attention_heads": 128,
    "num_key_value_heads": 8,
    "num_hidden_layers": 126,
    "vocab_size": 128256,
}
COMMON = {
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "vocab_size": 128,
    "intermediate_size": 80,
}
TINY: list[dict[str, Any]] = [
    {"model_type": "llama", **COMMON, "num_key_value_heads": 2},
    {"model_type": "llama", **COMMON, "num_key_value_heads": 6, "attention_bias": True, "mlp_bias": True},
    {"model_type": "llama", **COMMON, "num_key_value_heads": 3, "head_dim": 16, "tie_word_embeddings": True},
    {"model_type": "mistral", **COMMON, "num_key_value_heads": 2, "head_dim": 8, "sliding_window": None},
    {"model_type": "qwen2", **COMMON, "num_key_value_heads": 2},
    {"model_type": "gpt2", "n_embd": 48, "n_layer": 3, "n_head": 6, "n_positions": 32, "vocab_size": 128},
    {
        "model_type": "gpt2",
        "n_embd": 48,
        "n_layer": 3,
        "n_head": 6,
        "n_positions": 32,
        "vocab_size": 128,
        "n_inner": 72,
    },
    {"model_type": "gpt_neox", **COMMON, "rotary_pct": 1.0},
    {"model_type": "gpt_neox", **COMMON, "use_parallel_residual": False, "rotary_pct": 1, "attention_bias": False},
]


@pytest.mark.parametrize(
    ("source", "card"),
    [("llama3-8b.json", 8.03e9), ("llama3-70b.json", 70.55e9), (LLAMA_405B, 405.85e9), ("gpt2.json", 124_439_808)],
    ids=["8B", "70B", "405B", "gpt2"],
)
def test_parameters_are_those_of_the_model_card(source: str | dict[str, Any], card: float) -> None:
    spec = load_model(MODELS / source if isinstance(source, str) else source)
    assert spec.parameters == pytest.approx(card, rel=1e-3)


def test_parameters_of_published_models_are_exact() -> None:
    exact = {"llama2-7b": 6_738_415_616, "llama3-8b": 8_030_261_248, "llama3-70b": 70_553_706_496, "gpt2": 124_439_808}
    assert {name: load_model(MODELS / f"{name}.json").parameters for name in exact} == exact


def _transformers_count(config: dict[str, Any]) -> int:
    """Parameters of the model that transformers builds, on the meta device, shared ones once."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed: no count to compare with")
    import torch

    keys = {key: value for key, value in config.items() if key != "model_type"}
    with torch.device("meta"):
        built = transformers.AutoModelForCausalLM.from_config(
            transformers.AutoConfig.for_model(config["model_type"], **keys)
        )
    return sum(weight.numel() for weight in {id(weight): weight for weight in built.parameters()}.values())


@pytest.mark.parametrize("config", TINY, ids=[f"{n}-{config['model_type']}" for n, config in enumerate(TINY)])
def test_parameters_are_those_that_transformers_counts(config: dict[str, Any]) -> None:
    assert load_model(config).parameters == _transformers_count(config)


@pytest.mark.parametrize("config", TINY, ids=[f"{n}-{config['model_type']}" for n, config in enumerate(TINY)])
def test_the_parts_add_up_and_a_layer_more_adds_a_layer(config: dict[str, Any]) -> None:
    spec = load_model(config)
    layer = spec.layer_parameters_of(spec.kinds()[0])
    ends = spec.embedding_parameters + spec.final_norm_parameters + spec.head_parameters
    assert spec.parameters == spec.layers * layer + ends
    assert replace(spec, layers=spec.layers + 1).parameters == spec.parameters + layer


def test_a_tied_head_costs_no_matrix() -> None:
    untied = load_model(TINY[0])
    tied = replace(untied, tied=True)
    assert untied.parameters - tied.parameters == untied.vocab * untied.hidden
    assert tied.head_parameters == 0


def test_widths_of_grouped_queries() -> None:
    spec = load_model(MODELS / "llama3-8b.json")
    assert (spec.q_width, spec.kv_width) == (4096, 1024)


def test_qwen2_has_biases_on_query_key_and_value_alone() -> None:
    qwen = load_model(TINY[4])
    llama = load_model(TINY[0])
    assert qwen.attention_bias
    assert not qwen.output_bias
    biases = qwen.mixer(DENSE).parameters(qwen) - llama.mixer(DENSE).parameters(llama)
    assert biases == qwen.q_width + 2 * qwen.kv_width


def test_every_fault_of_a_config_json_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        load_model({"model_type": "llama", **COMMON, "hidden_size": 0, "num_experts": 8, "vocab_size": "x"})
    told = str(caught.value)
    assert all(fragment in told for fragment in ("hidden_size: 0", "num_experts: 8", "vocab_size: 'x'"))
    assert len(told.splitlines()) == 3


def test_a_missing_file_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'llama3-8b.json'"):
        load_model(MODELS / "llama3-8.json")


LLAMA_LIKE = {
    "architectures": ["ForCausalLM"],
    "attention_dropout": 0.0,
    "bos_token_id": 1,
    "eos_token_id": [2, 3],
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "max_position_embeddings": 32768,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-05,
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.42.3",
    "use_cache": True,
    **COMMON,
}
GPT2_LIKE = {
    "model_type": "gpt2",
    "activation_function": "gelu_new",
    "attn_pdrop": 0.1,
    "embd_pdrop": 0.1,
    "layer_norm_epsilon": 1e-05,
    "n_ctx": 1024,
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 12,
    "n_positions": 1024,
    "resid_pdrop": 0.1,
    "summary_activation": None,
    "summary_first_dropout": 0.1,
    "summary_proj_to_labels": True,
    "summary_type": "cls_index",
    "summary_use_proj": True,
    "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
    "vocab_size": 50257,
}
PUBLISHED: dict[str, dict[str, Any]] = {
    "Llama 3.1": {
        **LLAMA_LIKE,
        "model_type": "llama",
        "attention_bias": False,
        "mlp_bias": False,
        "pretraining_tp": 1,
        "rope_scaling": {"factor": 8.0, "rope_type": "llama3"},
    },
    "SmolLM2": {**LLAMA_LIKE, "model_type": "llama", "is_llama_config": True, "rope_interleaved": False},
    "Qwen2.5": {
        **LLAMA_LIKE,
        "model_type": "qwen2",
        "max_window_layers": 28,
        "sliding_window": 131072,
        "use_sliding_window": False,
        "use_mrope": False,
    },
    "Mistral 0.3": {**LLAMA_LIKE, "model_type": "mistral", "sliding_window": None, "_name_or_path": "x"},
    "GPT-2": GPT2_LIKE,
    "GPT-NeoX": {
        **COMMON,
        "model_type": "gpt_neox",
        "attention_probs_dropout_prob": 0,
        "classifier_dropout": 0.1,
        "hidden_act": "gelu",
        "hidden_dropout": 0.0,
        "hidden_dropout_prob": 0,
        "layer_norm_eps": 1e-05,
        "max_position_embeddings": 2048,
        "rotary_emb_base": 10000,
        "rotary_pct": 0.25,
        "use_parallel_residual": True,
        "hidden_size": 192,
    },
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_configs_as_published_are_read(name: str) -> None:
    assert load_model(PUBLISHED[name]).vocab > 0


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
        load_model({**PUBLISHED["Llama 3.1"], key: 1})
