"""Every architecture that is read: parameters as transformers counts them, kinds of layers, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from predict.model.families import FAMILIES
from predict.model.huggingface import override, own_key
from predict.model.layer_kinds import DENSE, LayerKind
from predict.model.parts.latent_attention import LatentAttention
from predict.model.parts.linear_attention import LinearAttention
from predict.model.parts.mixture import Experts
from predict.model.spec import ModelSpec
from sampling.errors import ConfigError
from sampling.files.places import CONFIGS
from tests.tested_names import untested

MODELS = CONFIGS / "models"
SHIPPED = sorted(path.stem for path in MODELS.glob("*.json"))
SLIDING = LayerKind(mixer="sliding")
LINEAR = LayerKind(mixer="linear")
SPARSE = LayerKind(sparse=True)
CARDS = {
    "llama2-7b": 6.74e9,
    "llama2-13b": 13.02e9,
    "llama2-70b": 68.98e9,
    "llama3-8b": 8.03e9,
    "llama3-70b": 70.55e9,
    "llama3.1-405b": 405.85e9,
    "gpt3-175b": 174.6e9,
    "mixtral-8x7b": 46.70e9,
    "mixtral-8x22b": 140.6e9,
    "qwen2.5-7b": 7.62e9,
    "qwen2.5-32b": 32.76e9,
    "qwen2.5-72b": 72.71e9,
    "qwen3-8b": 8.19e9,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "qwen3.5-35b-a3b": 34_660_610_688,
    "deepseek-v2": 235.7e9,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v3": 671_026_404_352,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
    "gemma2-27b": 27.23e9,
    "gemma3-27b": 27_009_346_304,
    "phi3-medium": 13.96e9,
    "mistral-7b": 7.24e9,
    "gpt-neox-20b": 20.55e9,
}
ACTIVE = {
    "mixtral-8x7b": 12.9e9,
    "mixtral-8x22b": 39.15e9,
    "qwen3-30b-a3b": 3.35e9,
    "qwen3-235b-a22b": 22.19e9,
    "qwen3.5-35b-a3b": 3_454_988_928,
    "deepseek-v2": 21.4e9,
    "deepseek-v3": 37.55e9,
    "gpt-oss-120b": 5.7e9,
    "llama3-8b": 8.03e9,
}
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
WITHOUT_FFN = {key: value for key, value in COMMON.items() if key != "intermediate_size"}
TINY: dict[str, dict[str, Any]] = {
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
    "gpt_neox": {
        **{key: value for key, value in COMMON.items() if key != "num_key_value_heads"},
        "model_type": "gpt_neox",
        "rotary_pct": 0.25,
    },
}
CONFIGS_READ = {name: json.loads((MODELS / f"{name}.json").read_text()) for name in SHIPPED} | TINY


PUBLISHED_KEYS: dict[str, dict[str, Any]] = {
    "mixtral": {"router_jitter_noise": 0.0, "output_router_logits": False, "router_aux_loss_coef": 0.02},
    "phi3": {
        "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config"},
        "attention_bias": False,
        "embd_pdrop": 0.0,
        "resid_pdrop": 0.0,
        "original_max_position_embeddings": 4096,
        "rope_scaling": None,
    },
    "qwen2_moe": {"use_sliding_window": False, "sliding_window": 32768, "max_window_layers": 21},
    "qwen3_moe": {"max_window_layers": 48, "norm_topk_prob": True, "rope_scaling": None},
    "deepseek_v3": {
        "aux_loss_alpha": 0.001,
        "ep_size": 1,
        "moe_layer_freq": 1,
        "norm_topk_prob": True,
        "pretraining_tp": 1,
        "rope_scaling": {"type": "yarn", "factor": 40},
        "routed_scaling_factor": 2.5,
        "scoring_func": "sigmoid",
        "seq_aux": True,
        "topk_method": "noaux_tc",
    },
    "gpt_oss": {
        "experts_per_token": 2,
        "initial_context_length": 4096,
        "output_router_logits": False,
        "rope_scaling": {"rope_type": "yarn", "truncate": False},
        "swiglu_limit": 7.0,
    },
    "gemma2": {
        "attn_logit_softcapping": 50.0,
        "cache_implementation": "hybrid",
        "final_logit_softcapping": 30.0,
        "hidden_act": "gelu_pytorch_tanh",
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": 144,
        "sliding_window": 4096,
    },
    "gemma3": {
        "boi_token_index": 255999,
        "eoi_token_index": 256000,
        "image_token_index": 262144,
        "initializer_range": 0.02,
        "mm_tokens_per_image": 256,
        "transformers_version": "4.50.0.dev0",
        "vision_config": {"hidden_size": 1152, "image_size": 896, "model_type": "siglip_vision_model"},
    },
    "qwen3_5_text": {
        "attn_output_gate": True,
        "mamba_ssm_dtype": "float32",
        "mtp_num_hidden_layers": 1,
        "mtp_use_dedicated_embeddings": False,
    },
}


def _transformers_config(config: dict[str, Any]) -> Any:
    """The library's configuration of the text decoder."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed: no count to compare with")
    keys = {key: value for key, value in config.items() if key not in ("model_type", "architectures")}
    try:
        whole = transformers.AutoConfig.for_model(config["model_type"], **keys)
    except ValueError:
        pytest.skip(f"this transformers does not know {config['model_type']}")
    return getattr(whole, "text_config", whole)


def _transformers_count(config: dict[str, Any]) -> int:
    """Parameters of the model that transformers builds, on the meta device, shared ones once."""
    decoder = _transformers_config(config)
    import torch
    import transformers

    with torch.device("meta"):
        built = transformers.AutoModelForCausalLM.from_config(decoder)
    return sum(weight.numel() for weight in {id(weight): weight for weight in built.parameters()}.values())


def _faults(config: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        ModelSpec.from_hf_config(config)
    return str(caught.value)


@pytest.mark.parametrize("name", CARDS)
def test_parameters_are_those_of_the_model_card(name: str) -> None:
    assert ModelSpec.from_hf_config(MODELS / f"{name}.json").parameters == pytest.approx(CARDS[name], rel=1e-3)


@pytest.mark.parametrize("name", ACTIVE)
def test_active_parameters_are_those_of_the_model_card(name: str) -> None:
    assert ModelSpec.from_hf_config(MODELS / f"{name}.json").active_parameters == pytest.approx(ACTIVE[name], rel=3e-3)


@pytest.mark.parametrize("name", CONFIGS_READ)
def test_parameters_are_those_that_transformers_counts(name: str) -> None:
    assert ModelSpec.from_hf_config(CONFIGS_READ[name]).parameters == _transformers_count(CONFIGS_READ[name])


@pytest.mark.parametrize("name", CONFIGS_READ)
def test_kinds_add_up_to_the_whole(name: str) -> None:
    spec = ModelSpec.from_hf_config(CONFIGS_READ[name])
    kinds = spec.kinds()
    assert len(kinds) == spec.layers
    ends = spec.embedding_parameters + spec.final_norm_parameters + spec.head_parameters
    layers = sum(spec.layer_parameters_of(kind) for kind in kinds)
    assert spec.parameters == ends + layers
    for kind in set(kinds):
        parts = spec.mixer(kind).parameters(spec) + spec.feed_forward(kind).parameters(spec)
        assert spec.layer_parameters_of(kind) == parts + spec.norms_a_layer * spec.norm_parameters
    assert spec.active_parameters <= spec.parameters


@pytest.mark.parametrize("name", TINY)
def test_configs_as_transformers_writes_them_mean_the_same(name: str) -> None:
    written = json.loads(_transformers_config(TINY[name]).to_json_string(use_diff=False))
    told = ModelSpec.from_hf_config(TINY[name])
    read = ModelSpec.from_hf_config(written)
    assert replace(read, name=told.name, max_positions=0, mtp_layers=0) == replace(told, max_positions=0, mtp_layers=0)


@pytest.mark.parametrize("name", ["qwen3_5", "qwen3_5_moe", "gemma3"])
def test_vision_language_configs_as_transformers_writes_them_mean_their_decoder(name: str) -> None:
    transformers = pytest.importorskip("transformers")
    keys = {key: value for key, value in TINY[name].items() if key != "model_type"}
    written = transformers.AutoConfig.for_model(name, **keys).to_dict()
    if name == "qwen3_5":
        assert "vision_config" in written
    assert ModelSpec.from_hf_config(written).parameters == ModelSpec.from_hf_config(TINY[name]).parameters


@pytest.mark.parametrize("name", PUBLISHED_KEYS)
def test_keys_of_published_configs_that_change_no_shape_change_none(name: str) -> None:
    read = ModelSpec.from_hf_config({**TINY[name], **PUBLISHED_KEYS[name]})
    assert replace(read, mtp_layers=0) == replace(ModelSpec.from_hf_config(TINY[name]), mtp_layers=0)


def test_every_family_has_a_config_here_or_a_test_of_its_own() -> None:
    tested = {config["model_type"] for config in CONFIGS_READ.values()} | {"qwen3_5_moe_text"}
    assert tested <= set(FAMILIES)
    assert untested(set(FAMILIES) - tested) == []


def test_each_family_says_which_layers_differ() -> None:
    kinds = {name: ModelSpec.from_hf_config(config).kinds() for name, config in TINY.items()}
    full_linear_sparse = LayerKind(mixer="linear", sparse=True)
    assert kinds["mistral"] == (SLIDING,) * 5
    assert kinds["mixtral"] == (SPARSE,) * 5
    assert kinds["mixtral-window"] == (LayerKind(mixer="sliding", sparse=True),) * 5
    assert kinds["qwen2-window"] == (DENSE, DENSE, SLIDING, SLIDING, SLIDING)
    assert kinds["qwen2_moe-mixed"] == (SLIDING, SPARSE, SLIDING, DENSE, DENSE)
    assert kinds["qwen3"] == (DENSE,) * 5
    assert kinds["qwen3-named"] == (DENSE, SLIDING, DENSE, DENSE, SLIDING)
    assert kinds["qwen3_moe"] == (DENSE, SPARSE, SPARSE, SPARSE, DENSE)
    assert kinds["qwen3_next"] == (full_linear_sparse, LINEAR, full_linear_sparse, SPARSE, full_linear_sparse)
    assert kinds["qwen3_5"] == (LINEAR, LINEAR, LINEAR, DENSE, LINEAR)
    assert kinds["qwen3_5_text"] == (LINEAR, DENSE, LINEAR, DENSE, LINEAR)
    assert kinds["deepseek_v3"] == (DENSE, DENSE, SPARSE, SPARSE, SPARSE)
    assert kinds["gemma2"] == (SLIDING, DENSE, SLIDING, DENSE, SLIDING)
    assert kinds["gemma3"] == (SLIDING,) * 5 + (DENSE, SLIDING)
    assert [kind.mixer for kind in kinds["gpt_oss"]] == ["sliding", "full", "sliding", "full", "sliding"]


def test_the_kinds_are_those_of_transformers() -> None:
    for name in ("qwen2-window", "qwen2_moe-mixed", "qwen3_next", "qwen3_5_text", "gemma2", "gemma3", "gpt_oss"):
        types = _transformers_config(TINY[name]).layer_types
        assert [f"{kind.mixer}_attention" for kind in ModelSpec.from_hf_config(TINY[name]).kinds()] == types, name


def test_a_dense_model_lists_no_kinds() -> None:
    assert ModelSpec.from_hf_config(MODELS / "llama3-8b.json").layer_kinds == ()
    without = ModelSpec.from_hf_config({**TINY["mistral"], "sliding_window": None})
    assert (without.layer_kinds, without.window) == ((), 0)
    assert ModelSpec.from_hf_config(TINY["mistral"]).window == 4096


def test_parts_are_read_from_their_keys() -> None:
    deepseek = ModelSpec.from_hf_config(MODELS / "deepseek-v3.json")
    assert deepseek.latent == LatentAttention(q_rank=1536, kv_rank=512, nope_dim=128, rope_dim=64, value_dim=128)
    assert deepseek.experts == Experts(count=256, topk=8, ffn=2048, shared_ffn=2048)
    assert (deepseek.head_dim, deepseek.rotary_dim, deepseek.mtp_layers) == (192, 64, 1)
    qwen = ModelSpec.from_hf_config(MODELS / "qwen3.5-35b-a3b.json")
    assert qwen.linear == LinearAttention(key_heads=16, value_heads=32, key_dim=128, value_dim=128, conv=4)
    assert qwen.experts == Experts(count=256, topk=8, ffn=512, shared_ffn=512, shared_gate=True)
    assert (qwen.query_gate, qwen.qk_norm, qwen.rotary_dim, qwen.head_dim) == (True, True, 64, 256)
    gemma = ModelSpec.from_hf_config(MODELS / "gemma2-27b.json")
    assert (gemma.attention_cap, gemma.logit_cap, gemma.norms_a_layer, gemma.tied) == (True, True, 4, True)
    assert not ModelSpec.from_hf_config(MODELS / "gemma3-27b.json").attention_cap
    oss = ModelSpec.from_hf_config(MODELS / "gpt-oss-20b.json")
    assert oss.sinks and oss.experts == Experts(count=32, topk=4, ffn=2880, bias=True, router_bias=True)
    neox = ModelSpec.from_hf_config(MODELS / "gpt-neox-20b.json")
    assert (neox.parallel_residual, neox.rotary_dim, neox.head_dim) == (True, 24, 96)


def test_multi_token_prediction_is_counted_apart() -> None:
    deepseek = ModelSpec.from_hf_config(MODELS / "deepseek-v3.json")
    module = deepseek.layer_parameters_of(deepseek.mtp_kind) + 2 * 7168**2 + 3 * 7168
    assert module == pytest.approx(11.6e9, rel=1e-3)
    assert replace(deepseek, mtp_layers=0).parameters == deepseek.parameters
    qwen = ModelSpec.from_hf_config(MODELS / "qwen3.5-35b-a3b.json")
    assert qwen.mtp_kind == SPARSE


def test_kinds_that_do_not_fit_the_model_are_refused() -> None:
    spec = ModelSpec.from_hf_config(MODELS / "llama3-8b.json")
    with pytest.raises(ValueError, match="2 layer_kinds for 32 layers"):
        replace(spec, layer_kinds=(DENSE, DENSE))
    with pytest.raises(ValueError, match="need experts"):
        replace(spec, layer_kinds=(SPARSE,) * 32)
    with pytest.raises(ValueError, match="need window"):
        replace(spec, layer_kinds=(SLIDING,) * 32)


HUGE = 10**6
WRONG: list[tuple[str, dict[str, Any], str, list[str]]] = [
    ("mixtral", {"num_experts_per_tok": 5}, "num_experts_per_tok", ["5", "num_local_experts", "4 or less"]),
    ("mixtral", {"num_local_experts": 0}, "num_local_experts", ["0", "from 1"]),
    ("mixtral", {"num_hidden_layers": HUGE}, "num_hidden_layers", ["1000000", "to 100000"]),
    ("mixtral", {"kv_lora_rank": 4}, "kv_lora_rank", ["latent attention", "deepseek_v2"]),
    ("mixtral", {"layer_types": ["linear_attention"]}, "layer_types", ["'linear_attention'", "qwen3_5"]),
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
    told = [line for line in _faults({**TINY[name], **changes}).splitlines() if f"model: {path}: " in line]
    assert any(all(fragment in line for fragment in fragments) for line in told), _faults({**TINY[name], **changes})


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
    told = _faults({"model_type": model_type, "num_experts": 3, "add_cross_attention": True})
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
                assert ModelSpec.from_hf_config(given).parameters > 0
            except ConfigError as told:
                assert str(told)


def test_faults_of_sizes_and_of_layers_are_told_at_once() -> None:
    told = _faults({**TINY["qwen3"], "hidden_size": 0, "layer_types": ["linear_attention"]})
    assert [line.split(": ")[1] for line in told.splitlines()] == ["hidden_size", "layer_types[0]"]


def test_other_names_of_experts_are_read() -> None:
    config = dict(TINY["qwen3_moe"])
    config["num_local_experts"] = config.pop("num_experts")
    config["experts_per_token"] = config.pop("num_experts_per_tok")
    assert ModelSpec.from_hf_config(config) == ModelSpec.from_hf_config(TINY["qwen3_moe"])
    assert "keep one of the two" in _faults({**TINY["qwen3_moe"], "num_local_experts": 7})


def test_settings_reach_the_decoder_inside() -> None:
    whole = TINY["gemma3"]
    assert own_key(whole, "num_layers") == "text_config.num_hidden_layers"
    assert own_key(whole, "text_config.num_layers") == "text_config.num_hidden_layers"
    assert own_key(whole, "model_type") == "model_type"
    changed = override(whole, "num_layers", 3)
    assert ModelSpec.from_hf_config(changed).layers == 3
    assert whole["text_config"]["num_hidden_layers"] == 7
    tied = override({**whole, "tie_word_embeddings": True}, "tie_word_embeddings", False)
    assert not ModelSpec.from_hf_config(tied).tied


def test_a_tied_head_is_said_beside_the_decoder_or_inside_it() -> None:
    beside = {**TINY["qwen3_5"], "tie_word_embeddings": True}
    assert ModelSpec.from_hf_config(beside).tied
    inside = {**TINY["qwen3_5"]["text_config"], "tie_word_embeddings": False}
    assert "tie_word_embeddings: true, but text_config says false" in _faults({**beside, "text_config": inside})


def test_shipped_configs_lie_where_the_readers_look() -> None:
    assert set(CARDS) <= set(SHIPPED)
    assert all((Path(MODELS) / f"{name}.json").read_text().endswith("}\n") for name in CARDS)
