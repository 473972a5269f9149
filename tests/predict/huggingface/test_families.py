"""Every architecture that is read: parameters as transformers counts them, and kinds of layers."""

from dataclasses import replace
from typing import Any

import pytest

from predict import default_config, load
from predict.config.document import Document
from predict.huggingface.config_json import load_model, override, own_key
from predict.layers.latent import LatentAttention
from predict.layers.linear import LinearAttention
from predict.layers.mixture import Mixture
from predict.layers.part import mixer_of
from predict.model.spec import DENSE, LayerKind
from predict.rank.share import RankShare
from sampling.errors import ConfigError
from sampling.files.places import CONFIGS
from sampling.operators.memory_bound import RMSNorm
from tests.predict.huggingface.family_configs import PUBLISHED_KEYS, TINY, faults_of, transformers_config

MODELS = CONFIGS / "models"
SLIDING = LayerKind(mixer="sliding")
LINEAR = LayerKind(mixer="linear")
SPARSE = LayerKind(sparse=True)
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


@pytest.mark.parametrize("name", ACTIVE)
def test_active_parameters_are_those_of_the_model_card(name: str) -> None:
    assert load_model(MODELS / f"{name}.json").active_parameters == pytest.approx(ACTIVE[name], rel=3e-3)


@pytest.mark.parametrize(
    ("name", "parameters", "active"),
    [("glm4.5", 355e9, 32e9), ("glm4.5-air", 106e9, 12e9), ("kimi-k2", 1.04e12, 32.6e9)],
)
def test_parameters_are_those_of_reports_that_count_in_their_own_way(
    name: str, parameters: float, active: float
) -> None:
    """GLM-4.5 (arXiv 2508.06471, table 1) counts no embedding and no head; Kimi K2 (arXiv 2507.20534, table 2) counts its one
    dense layer as a sparse one, as far as its figures show."""
    spec = load_model(MODELS / f"{name}.json")
    ends = spec.embedding_parameters + spec.head_parameters if name.startswith("glm") else 0
    assert spec.parameters - ends == pytest.approx(parameters, rel=0.014)
    assert spec.active_parameters - ends == pytest.approx(active, rel=0.016)


@pytest.mark.parametrize("name", PUBLISHED_KEYS)
def test_keys_of_published_configs_that_change_no_shape_change_none(name: str) -> None:
    read = load_model({**TINY[name], **PUBLISHED_KEYS[name]})
    assert replace(read, mtp_layers=0, tower=None) == replace(load_model(TINY[name]), mtp_layers=0)


def test_each_family_says_which_layers_differ() -> None:
    kinds = {name: load_model(config).kinds() for name, config in TINY.items()}
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
    assert kinds["glm4_moe"] == kinds["kimi_k2"] == (DENSE, DENSE, SPARSE, SPARSE, SPARSE)
    assert kinds["gemma2"] == (SLIDING, DENSE, SLIDING, DENSE, SLIDING)
    assert kinds["gemma3"] == (SLIDING,) * 5 + (DENSE, SLIDING)
    assert [kind.mixer for kind in kinds["gpt_oss"]] == ["sliding", "full", "sliding", "full", "sliding"]


@pytest.mark.parametrize("pattern", ["LLG", 3, None])
def test_a_pattern_of_exaone_is_a_number_or_a_letter_for_each_layer(pattern: str | int | None) -> None:
    """`LLLG` in the config.json of EXAONE-4.0-32B, which lists the types too."""
    given = {**TINY["exaone4"], "sliding_window": 16, "sliding_window_pattern": pattern}
    full = {2} if pattern else {3}
    by_pattern = load_model(given)
    assert [index for index, kind in enumerate(by_pattern.kinds()) if kind == DENSE] == [*full]
    types = ["full_attention" if index in full else "sliding_attention" for index in range(5)]
    assert load_model({**given, "layer_types": types}) == by_pattern


@pytest.mark.parametrize("pattern", ["LLGL", "", "3L", 0, 1.5, True, [3]])
def test_another_pattern_of_exaone_is_refused(pattern: Any) -> None:
    with pytest.raises(ConfigError, match="sliding_window_pattern: "):
        load_model({**TINY["exaone4"], "sliding_window": 16, "sliding_window_pattern": pattern})


def test_an_indexer_of_each_layer_is_read_and_one_for_several_refused() -> None:
    own = TINY["glm_moe_dsa"]
    layers = load_model(own).layers
    written_out = {**own, "indexer_types": ["full"] * layers, "index_topk_freq": 1, "index_topk_pattern": None}
    assert load_model(written_out) == load_model(own)
    shared = {**own, "indexer_types": ["full", *["shared"] * (layers - 1)]}
    assert "an indexer that picks keys for other layers too" in faults_of(shared)


def test_the_kinds_are_those_of_transformers() -> None:
    for name in ("qwen2-window", "qwen2_moe-mixed", "qwen3_next", "qwen3_5_text", "gemma2", "gemma3", "gpt_oss"):
        types = transformers_config(TINY[name]).layer_types
        assert [f"{kind.mixer}_attention" for kind in load_model(TINY[name]).kinds()] == types, name


def test_a_dense_model_lists_no_kinds() -> None:
    assert load_model(MODELS / "llama3-8b.json").layer_kinds == ()
    without = load_model({**TINY["mistral"], "sliding_window": None})
    assert (without.layer_kinds, without.window) == ((), 0)
    assert load_model(TINY["mistral"]).window == 4096


def test_parts_are_read_from_their_keys() -> None:
    deepseek = load_model(MODELS / "deepseek-v3.json")
    assert deepseek.attention == LatentAttention(q_rank=1536, kv_rank=512, nope_dim=128, rope_dim=64, value_dim=128)
    assert deepseek.experts == Mixture(count=256, topk=8, ffn=2048, shared_ffn=2048, groups=8, topk_groups=4)
    assert (deepseek.head_dim, deepseek.rotary_dim, deepseek.mtp_layers) == (192, 64, 1)
    qwen = load_model(MODELS / "qwen3.5-35b-a3b.json")
    assert qwen.mixer(qwen.kinds()[0]) == LinearAttention(
        key_heads=16, value_heads=32, key_dim=128, value_dim=128, conv=4
    )
    assert qwen.experts == Mixture(count=256, topk=8, ffn=512, shared_ffn=512, shared_gate=True)
    assert (qwen.query_gate, qwen.qk_norm, qwen.rotary_dim, qwen.head_dim) == (True, True, 64, 256)
    gemma = load_model(MODELS / "gemma2-27b.json")
    assert (gemma.attention_cap, gemma.logit_cap, gemma.norms_a_layer, gemma.tied) == (True, True, 4, True)
    assert not load_model(MODELS / "gemma3-27b.json").attention_cap
    oss = load_model(MODELS / "gpt-oss-20b.json")
    assert oss.sinks and oss.scaled_rope
    assert oss.experts == Mixture(count=32, topk=4, ffn=2880, bias=True, router_bias=True, clamped=True)
    glm = load_model(MODELS / "glm4.5.json")
    assert glm.experts == Mixture(count=160, topk=8, ffn=1536, shared_ffn=1536)
    assert (glm.qk_norm, glm.qkv_bias_only, glm.rotary_dim, glm.mtp_layers) == (True, True, 64, 1)
    neox = load_model(MODELS / "gpt-neox-20b.json")
    assert (neox.parallel_residual, neox.rotary_dim, neox.head_dim) == (True, 24, 96)


def test_multi_token_prediction_is_counted_apart() -> None:
    deepseek = load_model(MODELS / "deepseek-v3.json")
    module = deepseek.layer_parameters_of(deepseek.mtp_kind) + 2 * 7168**2 + 3 * 7168
    assert module == pytest.approx(11.6e9, rel=1e-3)
    assert replace(deepseek, mtp_layers=0).parameters == deepseek.parameters
    qwen = load_model(MODELS / "qwen3.5-35b-a3b.json")
    assert qwen.mtp_kind == SPARSE


def test_kinds_that_do_not_fit_the_model_are_refused() -> None:
    spec = load_model(MODELS / "llama3-8b.json")
    with pytest.raises(ValueError, match="2 layer_kinds for 32 layers"):
        replace(spec, layer_kinds=(DENSE, DENSE))
    with pytest.raises(ValueError, match="need experts"):
        replace(spec, layer_kinds=(SPARSE,) * 32)
    with pytest.raises(ValueError, match="need window"):
        replace(spec, layer_kinds=(SLIDING,) * 32)


def test_other_names_of_experts_are_read() -> None:
    config = dict(TINY["qwen3_moe"])
    config["num_local_experts"] = config.pop("num_experts")
    config["experts_per_token"] = config.pop("num_experts_per_tok")
    assert load_model(config) == load_model(TINY["qwen3_moe"])
    assert "keep one of the two" in faults_of({**TINY["qwen3_moe"], "num_local_experts": 7})


def test_settings_reach_the_decoder_inside() -> None:
    whole = TINY["gemma3"]
    assert own_key(whole, "num_layers") == "text_config.num_hidden_layers"
    assert own_key(whole, "text_config.num_layers") == "text_config.num_hidden_layers"
    assert own_key(whole, "model_type") == "model_type"
    changed = override(whole, "num_layers", 3)
    assert load_model(changed).layers == 3
    assert whole["text_config"]["num_hidden_layers"] == 7
    tied = override({**whole, "tie_word_embeddings": True}, "tie_word_embeddings", False)
    assert not load_model(tied).tied


def test_a_tied_head_is_said_beside_the_decoder_or_inside_it() -> None:
    beside = {**TINY["qwen3_5"], "tie_word_embeddings": True}
    assert load_model(beside).tied
    inside = {**TINY["qwen3_5"]["text_config"], "tie_word_embeddings": False}
    assert "tie_word_embeddings: true, but text_config says false" in faults_of({**beside, "text_config": inside})


def test_a_tower_that_is_not_known_around_a_decoder_is_refused() -> None:
    around = {"model_type": "kimi_k25", "text_config": TINY["kimi_k2"]}
    assert load_model(around).parameters == load_model(TINY["kimi_k2"]).parameters
    refused = faults_of({**around, "vision_config": {"hidden_size": 64}})
    assert (
        refused
        == "model: vision_config: the vision tower of kimi_k25 is not known; remove it, and its text alone is predicted"
    )


# OLMo 2: norms over all heads of queries and keys.


def on_eight(**plan: int) -> Document:
    content = {
        "model": "olmo2-32b",
        "cluster": {"hardware": "h100", "nodes": 1, "gpus_per_node": 8},
        "plan": {"zero": 3, **plan},
        "batch": {"global": 8, "micro": 1, "seq_len": 4096},
        "precision": "bf16",
    }
    return Document(name="olmo2-32b", content=content, sources={"": "here"})


def test_a_norm_spans_the_queries_of_all_heads_and_another_the_keys() -> None:
    rank = RankShare(run=load(on_eight(dp=8)))
    attention = mixer_of(rank.model, DENSE)
    assert attention is not None
    turned = next(module for module in attention.modules(rank, DENSE) if module.name == "rope")
    norms = [work for work, _ in turned.works if isinstance(work, RMSNorm)]
    assert [(norm.tokens, norm.hidden) for norm in norms] == [(4096, 40 * 128), (4096, 8 * 128)]
    assert attention.other_parameters(rank.model) == 48 * 128


def test_tensor_parallelism_that_would_split_them_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"plan\.tp: 2 splits the norms that olmo2-32b puts over all heads"):
        load(on_eight(tp=2, dp=4))
    assert load(default_config("olmo2-32b", "64xh100")).plan.tp == 1
