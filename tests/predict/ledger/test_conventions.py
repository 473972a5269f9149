"""Each convention gives the FLOPs that its formula gives by hand, and refuses by name what it does not know."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from predict.huggingface.config_json import load_model, with_model_type
from predict.ledger import conventions
from predict.ledger.verl_flops import ESTIMATORS, verl, verl_peak_flops_per_us
from sampling.errors import ConfigError, UserError
from sampling.files.places import CONFIGS
from sampling.hardware.cluster import hardware_facts

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 32,
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}
"""A layer has 3·8·16 = 384 weights of the MLP and 8·(8 + 4 + 4 + 8) = 192 of attention; embedding and head have 256 each."""
LENGTHS = [3, 5]
"""8 tokens; the squares add up to 34, and each token with itself and the earlier ones to 21 pairs."""
DELTA_NET: dict[str, Any] = {
    "model_type": "qwen3_5",
    "vocab_size": 32,
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 4,
    "partial_rotary_factor": 0.5,
    "linear_num_key_heads": 1,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 2,
    "linear_value_head_dim": 4,
    "linear_conv_kernel_dim": 4,
}
"""Three linear layers, then a full one of 8·(16 + 4 + 4 + 8) = 256 weights. A linear layer has keys of width 2 and values of
width 8: 8·(2·2 + 2·8 + 2·2) + 8·8 = 256 weights, and 4·(2·2 + 8) = 48 of the convolution."""


def _shipped(name: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((CONFIGS / "models" / f"{name}.json").read_text())
    return read


def test_verl_counts_the_look_up_and_half_the_square() -> None:
    weights = 2 * (384 + 192) + 2 * 256
    assert verl(LLAMA, LENGTHS) == 6 * weights * 8 + 6 * 34 * 8 * 2 == 83136


ROUTED = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 6}
SLIDING = {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]}
LATENT = {
    **LLAMA, "num_hidden_layers": 3, "first_k_dense_replace": 1, "qk_nope_head_dim": 3, "qk_rope_head_dim": 2, "v_head_dim": 4,
    "kv_lora_rank": 5, "q_lora_rank": 6, "n_routed_experts": 10, "num_experts_per_tok": 2, "moe_intermediate_size": 7, "n_shared_experts": 1,
}  # fmt: skip
"""A layer has 6·(8 + 10) weights of queries, 8·(5 + 2) + 2·(3 + 4)·5 of keys and values, 2·4·8 of the output: 298."""


@pytest.mark.parametrize(
    ("model_type", "keys", "weights", "pairs"),
    [
        ("qwen3_moe", {**LLAMA, **ROUTED}, 2 * (8 * (4 + 3 * 2 * 6) + 192), 2 * 34),
        ("qwen3_vl", {"text_config": LLAMA | {"head_dim": 64}}, 2 * (384 + 192), 2 * 34),
        ("qwen3_vl_moe", {"text_config": LLAMA | ROUTED}, 2 * (8 * (4 + 3 * 2 * 6) + 192), 2 * 34),
        ("qwen3", LLAMA | {"head_dim": 6}, 2 * (384 + 2 * 8 * (12 + 6)), 2 * 34 * 12 // 8),
        ("apertus", LLAMA, 2 * (2 * 8 * 16 + 8 + 4 + 192), 2 * 34),
        ("gemma3_text", {**LLAMA, **SLIDING}, 2 * (384 + 192), 34 + 3 * 3 + 5 * 4),
        ("gemma3_text", {**LLAMA, "sliding_window": 4, "sliding_window_pattern": 2}, 2 * (384 + 192), 34 + 3 * 3 + 5 * 4),
        ("gemma3_text", {**LLAMA, "sliding_window": 4}, 2 * (384 + 192), 2 * (3 * 3 + 5 * 4)),
        ("gemma3_text", {**LLAMA, **SLIDING, "sliding_window": None}, 2 * (384 + 192), 2 * 34),
        ("gpt_oss", {**LLAMA, **ROUTED, "num_local_experts": 5, **SLIDING}, 2 * (8 * (5 + 3 * 2 * 16) + 192), 34 + 3 * 3 + 5 * 4),
        ("hy_v3", {**LLAMA, **ROUTED, "head_dim": 4, "num_shared_experts": 1}, 2 * (8 * (4 + 3 * 3 * 6) + 192), 2 * 34),
        (
            "hy_v3",
            {**LLAMA, **ROUTED, "head_dim": 4, "moe_intermediate_size": None, "expert_hidden_dim": 5, "num_shared_experts": 0},
            2 * (8 * (4 + 3 * 2 * 5) + 192),
            2 * 34,
        ),
    ],
)  # fmt: skip
def test_verl_counts_each_kind_of_layer_as_its_formula_does(
    model_type: str, keys: dict[str, Any], weights: int, pairs: int
) -> None:
    assert verl({**keys, "model_type": model_type}, LENGTHS) == 6 * (weights + 2 * 256) * 8 + 6 * pairs * 8


@pytest.mark.parametrize(("model_type", "window"), [("gemma3_text", 1024), ("gpt_oss", 128)])
def test_verl_takes_a_window_of_its_own_where_the_config_names_none(model_type: str, window: int) -> None:
    sliding = {
        **LLAMA,
        **ROUTED,
        "num_local_experts": 5,
        "model_type": model_type,
        "layer_types": SLIDING["layer_types"],
    }
    full = verl({**sliding, "layer_types": ["full_attention"] * 2}, [2000])
    assert full - verl(sliding, [2000]) == 6 * 8 * 2000 * (2000 - window)
    assert full == verl({**sliding, "sliding_window": None}, [2000])


@pytest.mark.parametrize(("rank", "queries"), [(6, 6 * (8 + 10)), (None, 8 * 10)])
def test_verl_counts_latent_attention_and_dense_layers_before_the_mixtures(rank: int | None, queries: int) -> None:
    weights = 3 * (queries + 298 - 6 * (8 + 10)) + 2 * 8 * (10 + 3 * (2 + 1) * 7) + 384 + 2 * 256
    config = {**LATENT, "model_type": "deepseek_v3", "q_lora_rank": rank}
    assert verl(config, LENGTHS) == 6 * weights * 8 + 3 * 3 * 34 * 2 * (3 + 2 + 4)


def test_verl_counts_all_pairs_of_a_picture_and_a_merger_more_per_layer_of_the_deep_stack() -> None:
    tower = {
        "hidden_size": 4, "intermediate_size": 6, "depth": 2, "num_heads": 2, "spatial_merge_size": 2, "in_channels": 3,
        "temporal_patch_size": 2, "patch_size": 2, "out_hidden_size": 8, "deepstack_visual_indexes": [0],
    }  # fmt: skip
    patch, layer, merger = 4 * 3 * 2 * 2**2, 2 * 4 * 6 + 4 * 4 * 4, 16 * (8 + 16)
    config = {"model_type": "qwen3_vl", "text_config": LLAMA, "vision_config": tower}
    with_picture = verl(config, LENGTHS, images_seqlens=[4])
    assert with_picture - verl(config, LENGTHS) == 6 * (patch + 2 * layer + 2 * merger) * 4 + 6 * 2 * 2 * 16 * 4


def test_verl_counts_a_shared_expert_and_its_gate_beside_linear_layers() -> None:
    routed = {**DELTA_NET, **ROUTED, "model_type": "qwen3_5_moe"}
    dense, mixture = 384, 8 * (4 + 3 * 2 * 6)
    more = verl({**routed, "shared_expert_intermediate_size": 5}, LENGTHS) - verl(DELTA_NET, LENGTHS)
    assert more == 6 * 4 * (mixture + 8 * (3 * 5 + 1) - dense) * 8


def test_megatron_counts_half_the_square_without_the_look_up() -> None:
    assert conventions.megatron(LLAMA, LENGTHS) == 6 * (2 * (384 + 192) + 256) * 8 + 6 * 34 * 8 * 2 == 70848


def test_palm_counts_all_parameters_and_the_whole_square() -> None:
    norms = 5 * 8
    assert conventions.palm(LLAMA, LENGTHS) == 6 * (2 * (384 + 192) + 2 * 256 + norms) * 8 + 12 * 34 * 8 * 2 == 88320


def test_exact_counts_a_token_with_itself_and_earlier_ones() -> None:
    cores = 2 * 4 * 21 * 8
    assert conventions.exact(LLAMA, LENGTHS) == 3 * (2 * 8 * (2 * (384 + 192) + 256) + cores) == 71616


def test_hfu_adds_what_recomputation_repeats() -> None:
    cores, layers = 2 * 4 * 21 * 8, 2 * 8 * 2 * (384 + 192)
    assert conventions.hfu(LLAMA, LENGTHS) == 71616
    assert conventions.hfu(LLAMA, LENGTHS, recompute="selective") == 71616 + cores
    assert conventions.hfu(LLAMA, LENGTHS, recompute="full") == 71616 + layers + cores
    with pytest.raises(ConfigError, match=r"recompute: 'fulll' .*did you mean 'full'"):
        conventions.hfu(LLAMA, LENGTHS, recompute="fulll")


def test_linear_layers_are_counted_in_each_convention() -> None:
    feed_forward, ends = 4 * 384, 2 * 256
    weights = feed_forward + 256 + 3 * (256 + 48)
    squares, state = 34 * 8, 2 * 2 * 4
    assert verl(DELTA_NET, LENGTHS) == 6 * (weights + ends) * 8 + 6 * squares + 15 * state * 8 * 3
    recurrence = 3 * 2 * 4**2 * 4
    assert conventions.megatron(DELTA_NET, LENGTHS) == 6 * (weights + 256 + recurrence) * 8 + 6 * squares
    # with every fourth layer full, one of multi-token prediction after four is linear
    further = conventions.megatron(DELTA_NET | {"mtp_num_hidden_layers": 1}, LENGTHS)
    joining = 3 * 8 + 2 * 8**2
    assert further - conventions.megatron(DELTA_NET, LENGTHS) == 6 * 8 * (384 + 304 + 2 * 4**2 * 4 + 256 + joining)
    padded, chunk = 2 * 64, 2 * 64 * (2 * 2 + 4) + 6 * 2 * 4 + 64 * (2 + 4)
    forward = 2 * 8 * (weights + 256) + 4 * 21 * 8 + 3 * 2 * padded * chunk
    assert conventions.exact(DELTA_NET, LENGTHS) == 3 * forward


def test_a_window_bounds_the_pairs_where_the_convention_knows_windows() -> None:
    config = _shipped("gpt-oss-20b") | {"layer_types": ["sliding_attention", "full_attention"] * 12}
    full = config | {"layer_types": ["full_attention"] * 24}
    assert conventions.megatron(config, [1024]) == conventions.megatron(full, [1024])
    saved = 12 * 64 * 64  # layers that slide, times the width of all heads
    assert verl(full, [1024]) - verl(config, [1024]) == 6 * saved * (1024**2 - 1024 * 128)
    pairs = 1024 * 1025 // 2 - (128 * 129 // 2 + 896 * 128)
    assert conventions.exact(full, [1024]) - conventions.exact(config, [1024]) == 3 * 4 * saved * pairs


def test_multi_token_prediction_is_counted_on_request_and_by_megatron() -> None:
    config = _shipped("deepseek-v3")
    without = {key: value for key, value in config.items() if key != "num_nextn_predict_layers"}
    assert conventions.exact(config, [4096]) == conventions.exact(without, [4096])
    own = conventions.exact(config, [4096])
    layer = conventions.exact(config | {"num_hidden_layers": config["num_hidden_layers"] + 1}, [4096]) - own
    head, joining = config["vocab_size"] * config["hidden_size"], 2 * config["hidden_size"] ** 2
    assert conventions.exact(config, [4096], mtp=True) == own + layer + 6 * 4096 * (head + joining)
    assert conventions.megatron(config, [4096]) > conventions.megatron(without, [4096])
    # 2.60e11 FLOPs per token follow from the TFLOP/s and tokens/s that Megatron-LM reports for DeepSeek-V3 at 4,096 tokens
    assert conventions.megatron(config, [4096]) / 4096 == pytest.approx(2.60e11, rel=2e-3)


def test_megatron_counts_experts_between_two_products_into_and_out_of_their_own_width() -> None:
    config = _shipped("nemotron3-super-120b-a12b")
    mixtures = config["hybrid_override_pattern"].count("E") + config.get("num_nextn_predict_layers", 0)
    one_more = config | {"num_experts_per_tok": config["num_experts_per_tok"] + 1}
    expert = 2 * config["moe_intermediate_size"] * config["moe_latent_size"]
    more = conventions.megatron(one_more, [64]) - conventions.megatron(config, [64])
    assert more == pytest.approx(6 * 64 * mixtures * expert)


@pytest.mark.parametrize("name", sorted(path.stem for path in (CONFIGS / "models").glob("*.json")))
def test_every_shipped_model_is_counted_or_refused_by_name(name: str) -> None:
    config = _shipped(name)
    spec = load_model(config)
    for count in (conventions.palm, conventions.megatron, conventions.exact, conventions.hfu):
        if spec.is_encoder_decoder:
            with pytest.raises(ConfigError, match="has an encoder, whose sequences the"):
                count(config, [64])
        else:
            assert count(config, [64]) > 0
    called = with_model_type(config)["model_type"]
    if called in ESTIMATORS:
        assert verl(config, [64]) > 0
    else:
        with pytest.raises(ConfigError, match=f"no estimator for '{called}'"):
            verl(config, [64])


@pytest.mark.parametrize("count", [conventions.palm, conventions.megatron, conventions.exact, conventions.hfu])
def test_an_unknown_model_is_refused_by_name(count: Callable[..., float]) -> None:
    with pytest.raises(ConfigError, match="'mamba2'"):
        count({**LLAMA, "model_type": "mamba2"}, LENGTHS)


def test_verl_names_every_missing_or_unsound_key_at_once() -> None:
    config = {key: value for key, value in LLAMA.items() if key != "vocab_size"} | {"hidden_size": "8"}
    with pytest.raises(ConfigError, match=r"vocab_size: missing") as caught:
        verl(config, LENGTHS)
    assert "hidden_size: '8' is not an integer" in str(caught.value)
    assert "head_dim" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"text_config: missing"):
        verl({**LLAMA, "model_type": "qwen3_vl"}, LENGTHS)
    with pytest.raises(ConfigError, match=r"vision_config: missing"):
        verl(DELTA_NET, LENGTHS, images_seqlens=[16])


@pytest.mark.parametrize("count", [verl, conventions.exact])
@pytest.mark.parametrize("lengths", [[], [4, 0], [4, -1], [True], [2.5]])
def test_an_unsound_batch_is_refused(count: Callable[..., float], lengths: list[Any]) -> None:
    with pytest.raises(ConfigError, match="batch: lengths"):
        count(LLAMA, lengths)


@pytest.mark.parametrize(
    ("hardware", "tflops"), [("h100-sxm", 989), ("a100-80gb", 312), ("gb200", 2500), ("b200", 2250), ("gh200", 989)]
)
def test_verl_divides_by_its_own_peaks(hardware: str, tflops: float) -> None:
    assert verl_peak_flops_per_us(hardware_facts(hardware)) == tflops * 1e6


@pytest.mark.parametrize(
    ("hardware", "why"), [("h100-pcie", "takes NVIDIA H100 PCIe for H100"), ("mi325x", "has no AMD Instinct MI325X")]
)
def test_a_device_that_verl_does_not_know_is_refused_by_name(hardware: str, why: str) -> None:
    with pytest.raises(UserError, match=why):
        verl_peak_flops_per_us(hardware_facts(hardware))
