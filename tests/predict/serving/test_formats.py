"""Weights and caches in fewer bits: bytes, rates, refusals, and what checkpoints state of themselves."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from predict.model.shipped import shipped_model
from predict.prices.kernels.products import grouped_us
from predict.reports.serving_step import notes_on_step
from predict.serving.batch import Chunk, StepBatch
from predict.serving.config import load_serving
from predict.serving.formats import WEIGHTS, published_in, stated_formats
from predict.serving.kv_cache import kept_bytes, weight_bytes
from predict.serving.stepper import USUAL_STEP, stepper
from sampling.errors import ConfigError
from sampling.files.faults import shown
from sampling.hardware.cluster import load_cluster
from sampling.operators.experts import GroupedGemm
from tests.predict.serving.servers import CONFIG

ALONE, PROMPT = StepBatch(decodes=(800,)), StepBatch(chunks=(Chunk(tokens=2048),))
LAYERS = 6_979_321_856
"""Elements of the matrices in the layers of Llama-3-8B."""


def median_us(batch: StepBatch, *keys: str) -> float:
    return stepper(load_serving(CONFIG, keys).server).step_times([batch])[0].median_us


@pytest.mark.parametrize(
    "precision, bits",
    [("fp8", 8), ("w4a16", 4 + 20 / 128), ("w8a16", 8 + 16 / 128), ("w8a8", 8), ("nvfp4", 4.5), ("mxfp4", 4.25)],
)
def test_weights_take_their_bits_and_their_scales(precision: str, bits: float) -> None:
    plain, other = (
        weight_bytes(load_serving(CONFIG, [f"placement.precision={each}"]).server) for each in ("bf16", precision)
    )
    assert plain - other == pytest.approx(LAYERS * (16 - bits) / 8, rel=0.001)


def test_weights_of_four_bits_save_bytes_but_no_flops() -> None:
    alone = [median_us(ALONE, f"placement.precision={each}") for each in ("bf16", "w8a16", "w4a16")]
    assert alone == sorted(alone, reverse=True) and alone[0] > 1.5 * alone[2]
    assert median_us(PROMPT, "placement.precision=w4a16") > median_us(PROMPT)
    assert median_us(PROMPT, "placement.precision=w8a8") < median_us(PROMPT)
    assert median_us(PROMPT, "placement.precision=fp8") < median_us(PROMPT, "placement.precision=fp8_block")


def test_hardware_with_four_bit_products_uses_them() -> None:
    keys = ("hardware=B200", "placement.precision={}")
    assert median_us(PROMPT, keys[0], keys[1].format("nvfp4")) < median_us(PROMPT, keys[0], keys[1].format("fp8"))


def test_experts_alone_may_have_fewer_bits() -> None:
    keys = ["model=gpt-oss-20b", "placement.precision=mxfp4", "load.prompt=500"]
    layers, experts = (
        weight_bytes(load_serving(CONFIG, [*keys, f"placement.quantised={each}"]).server)
        for each in ("layers", "experts")
    )
    bf16 = weight_bytes(load_serving(CONFIG, ["model=gpt-oss-20b", "load.prompt=500"]).server)
    assert layers < experts < bf16 / 2.5


@pytest.mark.parametrize("cache, share", [("fp8", 0.5), ("int8", 0.5 + 1 / 128)])
def test_a_cache_of_fewer_bits_is_smaller_and_read_faster(cache: str, share: float) -> None:
    plain, small = load_serving(CONFIG).server, load_serving(CONFIG, [f"placement.kv_precision={cache}"]).server
    assert kept_bytes(small).token == pytest.approx(share * kept_bytes(plain).token)
    long = StepBatch(decodes=(6_000,) * 32)
    assert median_us(long, f"placement.kv_precision={cache}") < median_us(long)


@pytest.mark.parametrize("precision", WEIGHTS)
def test_no_step_is_faster_than_light(precision: str) -> None:
    found = stepper(load_serving(CONFIG, [f"placement.precision={precision}"] if precision != "fp32" else []).server)
    assert found.bound_us(USUAL_STEP) < found.step_times([USUAL_STEP])[0].median_us


def test_formats_that_no_served_model_was_measured_in_have_a_wider_interval() -> None:
    plain, other = (stepper(load_serving(CONFIG, keys).server) for keys in ([], ["placement.precision=w4a16"]))
    assert other.half_width > plain.half_width + 0.05


def test_widened_weights_are_noted() -> None:
    emulated = stepper(load_serving(CONFIG, ["placement.precision=nvfp4"]).server)
    assert any("does not multiply nvfp4: weights are widened" in note for note in notes_on_step(emulated, ALONE))
    assert not any("widened" in note for note in notes_on_step(stepper(load_serving(CONFIG).server), ALONE))


STATED: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({"quant_method": "awq", "bits": 4, "group_size": 128}, {"precision": "w4a16"}),
    ({"quant_method": "gptq", "bits": 8}, {"precision": "w8a16"}),
    ({"quant_method": "fp8", "weight_block_size": [128, 128]}, {"precision": "fp8_block"}),
    (
        {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router"]},
        {"precision": "mxfp4", "quantised": "experts"},
    ),
    (
        {"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"},
        {"precision": "nvfp4", "kv_precision": "fp8"},
    ),
    (
        {
            "quant_method": "compressed-tensors",
            "config_groups": {
                "group_0": {
                    "weights": {"num_bits": 8, "type": "int"},
                    "input_activations": {"num_bits": 8, "type": "int"},
                }
            },
            "kv_cache_scheme": {"num_bits": 8, "type": "float"},
        },
        {"precision": "w8a8", "kv_precision": "fp8"},
    ),
    (
        {"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"num_bits": 4, "type": "int"}}}},
        {"precision": "w4a16"},
    ),
]


@pytest.mark.parametrize("given, wanted", STATED)
def test_checkpoints_state_their_formats(given: dict[str, Any], wanted: dict[str, str]) -> None:
    assert stated_formats(given) == (wanted, [])


BY_BLOCK, PLAIN = {"precision": "fp8_block"}, {"precision": "fp8"}
IN_FOUR_BITS = {"precision": "nvfp4", "quantised": "experts", "kv_precision": "fp8"}


@pytest.mark.parametrize(
    ("checkpoint", "engine", "said", "wanted"),
    [
        ("deepseek-ai/DeepSeek-V3", "vllm-v1", "", BY_BLOCK),
        ("deepseek-ai/DeepSeek-V3", "sglang", "", PLAIN),
        ("deepseek-ai/DeepSeek-V3", "tensorrt-llm", "fp8", PLAIN),
        ("deepseek-ai/DeepSeek-V3", "vllm-v1", "fp4", {}),
        ("nvidia/DeepSeek-R1-0528-NVFP4-v2", "tensorrt-llm", "", IN_FOUR_BITS),
        ("nvidia/MiniMax-M2.5-NVFP4", "vllm-v1", "nvfp4", IN_FOUR_BITS),
        ("nvidia/Llama-3.3-70B-Instruct-FP4", "vllm-v1", "nvfp4", {}),
        ("nvidia/DeepSeek-R1-Distill-Llama-70B-NVFP4", "vllm-v1", "nvfp4", {}),
        ("/models/DeepSeek-V3-0324/", "vllm-v1", "", BY_BLOCK),
        ("/models/Kimi-K2-Thinking", "sglang", "int4", {"precision": "w4a16", "quantised": "experts"}),
        ("/models/Qwen3-235B-A22B-FP8", "vllm-v1", "fp8", {}),
        ("Qwen/Qwen3-235B-A22B-FP8", "vllm-v1", "fp8", BY_BLOCK),
        ("meta-llama/Llama-3.1-8B", "vllm-v1", "fp8", {}),
    ],
)
def test_checkpoints_are_taken_as_they_were_published(
    checkpoint: str, engine: str, said: str, wanted: dict[str, str]
) -> None:
    """Fp8 by block where the engine's kernels for it are priced."""
    assert published_in(checkpoint, engine, said) == wanted


@pytest.mark.parametrize("bits", ["four", "4.x", None, [4], {"a": 4}, 3, 4.5, -4, float("nan"), float("inf"), True])
@pytest.mark.parametrize(
    "keys",
    [
        lambda bits: {"quant_method": "gptq", "bits": bits},
        lambda bits: {
            "quant_method": "compressed-tensors",
            "config_groups": {"g": {"weights": {"num_bits": bits, "type": "float"}}},
        },
        lambda bits: {
            "quant_method": "compressed-tensors",
            "config_groups": {"g": {"weights": {"num_bits": bits, "type": "int"}}},
        },
    ],
)
def test_bits_that_no_format_has_are_refused(keys: Callable[[Any], dict[str, Any]], bits: Any) -> None:
    formats, (fault,) = stated_formats(keys(bits))
    assert formats == {}
    assert fault.path == "quantization_config" and "set placement.precision" in fault.problem
    if "bits" in keys(bits):
        assert fault.problem.startswith(f"gptq with bits {shown(bits)} is not known")


@pytest.mark.parametrize("kernel, plain, low, high", [("w4a16", "bf16", 0.85, 1), ("fp8_block", "fp8", 0.65, 0.85)])
def test_experts_of_few_bits_run_at_their_own_kernels_rate(kernel: str, plain: str, low: float, high: float) -> None:
    gpu = load_cluster(hardware="H100", nodes=1, gpus_per_node=1, profile="analytic").gpu
    shape = {"groups": 8, "rows": 8 * 2048, "n": 4096, "k": 4096, "distribution": "balanced"}
    of_few = GroupedGemm(dtype="fp8" if plain == "fp8" else "bf16", kernel=kernel, **shape)  # type: ignore[arg-type]
    times = [grouped_us(call, "forward", gpu)[0] for call in (of_few, replace(of_few, kernel=""))]
    assert low < times[0] / times[1] < high


def test_a_checkpoints_formats_are_read_unless_the_placement_states_others() -> None:
    path = shipped_model("llama3-8b")
    assert path is not None
    model = {**json.loads(path.read_text()), "quantization_config": {"quant_method": "awq", "bits": 4}}
    config = {"model": model, "hardware": "H100", "load": {"rate": 1}}
    assert load_serving(config).server.placement.precision == "w4a16"
    assert load_serving(config, ["placement.precision=bf16"]).server.placement.precision == "bf16"
    model["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    engines = [load_serving(config, [f"engine.name={name}"]).server for name in ("vllm-v1", "sglang")]
    assert [one.placement.precision for one in engines] == ["fp8_block", "fp8"]
    model["quantization_config"] = {"quant_method": "quip"}
    with pytest.raises(ConfigError, match="quantization_config: quip with these keys is not known"):
        load_serving(config)
