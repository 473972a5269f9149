"""Vision towers beside transformers' own modules: parameters, FLOPs, and the bytes that a trained one keeps."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from predict.huggingface.config_json import load_model
from predict.layers.run_json import dump_run, load_run
from predict.ledger.conventions import forward_parts
from predict.memory.activations import unit_activations
from predict.memory.estimate import memory_of
from predict.memory.state import run_of_unit, tower_units
from predict.rank.blocks import Blocks
from predict.rank.share import RankShare
from predict.run.model_flops import tower_flops_per_step
from predict.run.training_run import TrainingRun
from predict.workload.chunks import VISION
from predict.workload.decompose import decompose
from sampling.collectives.kinds import AllGather
from sampling.errors import ConfigError
from sampling.operators.gemm import Gemm
from tests.predict.layers.saved_bytes import BF16, FP32, saved_bytes
from tests.predict.memory.counted_layers import PROFILES
from tests.predict.workload.parallel_runs import collectives, counted, flops, made

TEXT: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 96,
    "head_dim": 8,
    "tie_word_embeddings": False,
}
QWEN: dict[str, Any] = {"depth": 2, "hidden_size": 24, "intermediate_size": 40, "num_heads": 2, "patch_size": 4}
WHOLE: dict[str, Any] = {
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 32,
    "patch_size": 4,
}


def around(model_type: str, text: str, vision: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "model_type": model_type,
        "text_config": {**TEXT, "model_type": text},
        "vision_config": vision,
        "tie_word_embeddings": False,
        **more,
    }


CONFIGS: dict[str, dict[str, Any]] = {
    "qwen2_vl": around(
        "qwen2_vl",
        "qwen2_vl_text",
        {**QWEN, "embed_dim": 24, "hidden_size": 32, "mlp_ratio": 2, "intermediate_size": None},
    ),
    "qwen2_5_vl": around(
        "qwen2_5_vl",
        "qwen2_5_vl_text",
        {**QWEN, "out_hidden_size": 32, "window_size": 16, "fullatt_block_indexes": [1]},
    ),
    "qwen3_vl": around(
        "qwen3_vl",
        "qwen3_vl_text",
        {**QWEN, "out_hidden_size": 32, "num_position_embeddings": 64, "deepstack_visual_indexes": [0]},
    ),
    "qwen3_5": around("qwen3_5", "qwen3_5_text", {**QWEN, "out_hidden_size": 32, "num_position_embeddings": 64}),
    "gemma3": around("gemma3", "gemma3_text", {**WHOLE, "vision_use_head": False}, mm_tokens_per_image=16),
    "internvl": around("internvl", "qwen2", {**WHOLE, "attention_bias": True}, image_seq_length=16),
    "mistral3": around("mistral3", "mistral", {**WHOLE, "head_dim": 12}),
    "llama4": around(
        "llama4",
        "llama4_text",
        {
            **WHOLE,
            "intermediate_size": 96,
            "vision_output_dim": 20,
            "projector_input_dim": 20,
            "projector_output_dim": 20,
        },
    ),
}
CONFIGS["qwen3_5"]["text_config"] |= {
    **dict.fromkeys(("linear_num_key_heads", "linear_num_value_heads"), 2),
    **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim"), 8),
    "linear_conv_kernel_dim": 4,
}
del CONFIGS["qwen2_vl"]["vision_config"]["intermediate_size"]
CONFIGS["mllama"] = around(
    "mllama",
    "mllama_text_model",
    {
        **{name: value for name, value in WHOLE.items() if name != "num_attention_heads"},
        "attention_heads": 2,
        "num_global_layers": 1,
        "intermediate_layers_indices": [0],
        "vision_output_dim": 48,
        "norm_eps": 1e-5,
    },
)
CONFIGS["mllama"]["text_config"] |= {"num_hidden_layers": 3, "cross_attention_layers": [1], "pad_token_id": 0}
del CONFIGS["mllama"]["text_config"]["head_dim"]
TILES = 4
"""Of an image of Llama 3.2 Vision."""


def built(name: str, **settings: Any) -> Any:
    """transformers' whole model."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed: nothing to compare with")
    config = transformers.AutoConfig.for_model(**CONFIGS[name], **settings)
    return transformers.AutoModelForImageTextToText.from_config(config).train()


@pytest.mark.parametrize("name", CONFIGS)
def test_parameters_are_those_that_transformers_counts(name: str) -> None:
    with torch.device("meta"):
        counted = sum(parameter.numel() for parameter in built(name).parameters())
    assert load_model(CONFIGS[name]).parameters_with_tower == counted


SIDE, IMAGES = 8, 2
"""Patches of an image's side, as many as images of fixed size have, and images of a microbatch."""


def run_of(name: str, *, images: int = IMAGES, trained: str = "all", **settings: Any) -> TrainingRun:
    model = load_model(CONFIGS[name])
    assert model.tower
    assert model.tower.patches
    tokens = settings.pop("image_tokens", 0 if model.tower.patches.tokens else SIDE**2 // model.tower.patches.merged)
    vision = {"images": images, "image_tokens": tokens, "trained": trained}
    return made(model, vision=vision, **{"batch": {"global": 1, "micro": 1, "seq_len": 64}, **settings})


def tower_of(name: str, **settings: Any) -> TrainingRun:
    tower = run_of(name, **settings).tower
    assert tower is not None
    return tower


def images_of(name: str) -> int:
    """Images of a forward: Pixtral's attention in transformers multiplies patches of all of them, and masks those of others."""
    return 1 if name == "mistral3" else IMAGES


def forward_of(name: str, dtype: torch.dtype, attention: str) -> tuple[Callable[[], Any], Any]:
    """The forward of transformers' tower and projectors over images, and the whole model."""
    model = built(name, attn_implementation=attention).to(dtype)
    inner = model.model
    if name.startswith("qwen"):
        pixels = torch.randn(IMAGES * SIDE**2, 3 * 2 * 16, dtype=dtype)
        grid = torch.tensor([[1, SIDE, SIDE]] * IMAGES)
        return lambda: inner.visual(pixels, grid_thw=grid).pooler_output, model
    if name == "mllama":
        tiles = torch.randn(IMAGES, 1, TILES, 3, 32, 32, dtype=dtype)
        seen = {"aspect_ratio_ids": torch.ones(IMAGES, 1, dtype=torch.long)}
        mask = torch.ones(IMAGES, 1, TILES, dtype=torch.long)
        tower, projector = inner.vision_model, inner.multi_modal_projector
        return lambda: projector(tower(tiles, aspect_ratio_mask=mask, **seen).last_hidden_state), model
    pixels = torch.randn(images_of(name), 3, 32, 32, dtype=dtype)
    sizes = {"image_sizes": torch.tensor([[32, 32]])} if name == "mistral3" else {}
    return lambda: inner.get_image_features(pixels, **sizes), model


@pytest.mark.parametrize(
    "name", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5", "gemma3", "internvl", "mistral3", "mllama"]
)
def test_flops_are_those_that_torch_counts(name: str) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    forward, _ = forward_of(name, torch.float32, "eager")
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        forward()
    tower = tower_of(name, images=images_of(name))
    parts = forward_parts(tower.model, {tower.batch.seq_len: tower.batch.micro}, mtp=False)
    # transformers makes the mask of Llama 3.2 Vision's tiles by a product of the tiles that are there
    mask = 2 * IMAGES * tower.batch.seq_len**2 if name == "mllama" else 0
    assert sum(part.forward for part in parts) + mask == counter.get_total_flops()


def kept_bytes(run: TrainingRun) -> float:
    """What all units of the tower keep of a microbatch; the first layer keeps the rotary tables of all."""
    found, layers = 0.0, 0
    for unit in tower_units(run):
        kept = unit_activations(RankShare(run=run_of_unit(run, unit)), PROFILES["eager"], unit)
        layers += unit.role == "layer"
        found += kept.kept_without_rotary_bytes if layers > 1 else kept.kept_bytes
    return found


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("qwen2_5_vl", FP32),
        ("qwen2_5_vl", BF16),
        ("qwen3_vl", FP32),
        ("qwen3_5", FP32),
        ("internvl", FP32),
        ("gemma3", FP32),
        ("mistral3", FP32),
    ],
)
def test_a_trained_tower_keeps_every_byte_that_torch_saves(name: str, dtype: torch.dtype) -> None:
    """But for what transformers keeps beside: Qwen's layers attend to each image in a call of its own on a CPU, and join the outputs, which
    kernels of packed sequences do not; SigLIP keeps the places of its positions, and Gemma 3's norm 1 + weight; Pixtral's attention
    keeps its mask."""
    forward, model = forward_of(name, dtype, "sdpa")
    run = run_of(name, precision="bf16" if dtype is BF16 else "fp32", images=images_of(name))
    tower = tower_of(name)
    joined = 2 * tower.batch.micro * tower.batch.seq_len * tower.model.hidden * dtype.itemsize
    beside = {"gemma3": 8 * SIDE**2 + 4 * tower.model.hidden, "mistral3": 4 * SIDE**4}.get(name, 0)
    assert kept_bytes(run) == saved_bytes(forward, [model]) - (joined if name.startswith("qwen") else beside)


def test_what_is_not_trained_runs_forward_alone() -> None:
    """The tower's products: three times forward where trained, but for the pixels' gradient, which nobody needs."""
    found = {}
    for trained in ("all", "projector", "none"):
        chunk = decompose(run_of("qwen2_5_vl", trained=trained))[0].chunks[0]
        found[trained] = [flops(_of_tower(blocks)) for blocks in (chunk.forward, chunk.backward)]
    tower = tower_of("qwen2_5_vl")
    pixels, *_, projectors = forward_parts(tower.model, {tower.batch.seq_len: tower.batch.micro}, mtp=False)
    forward = found["none"][0]
    assert forward == found["projector"][0] == found["all"][0]
    assert found["none"][1] == 0
    assert found["projector"][1] == 2 * projectors.forward
    assert found["all"][1] > 2 * forward - pixels.forward - 1


def _of_tower(blocks: Blocks) -> Blocks:
    return tuple(each for each in blocks if each.block.heading == VISION)


def test_a_frozen_tower_takes_memory_for_its_weights_alone() -> None:
    worst = {}
    for trained in ("all", "projector", "none"):
        worst[trained] = memory_of(run_of("qwen2_5_vl", trained=trained)).worst
    text = memory_of(run_of("qwen2_5_vl", images=0, image_tokens=0)).worst
    tower = tower_of("qwen2_5_vl").model
    assert worst["none"].parameters - text.parameters == 2 * tower.parameters
    assert (worst["none"].optimizer, worst["none"].gradients) == (text.optimizer, text.gradients)
    assert worst["none"].optimizer < worst["projector"].optimizer < worst["all"].optimizer


def test_a_tower_stands_on_the_first_stage() -> None:
    first, last = decompose(run_of("gemma3", plan__pp=2))
    assert flops(_of_tower(first.chunks[0].forward)) > 0
    assert not _of_tower(last.chunks[0].forward)


@pytest.mark.parametrize(
    "plan",
    [
        {"cp": 4, "dp": 2, "zero": 3, "shard": 8},
        {"cp": 4, "dp": 1, "zero": 3},
        {"cp": 2, "dp": 2, "zero": 2, "shard": 2},
        {"tp": 4, "dp": 8, "zero": 3},
    ],
)
def test_a_tower_is_sharded_over_the_ranks_of_the_text(plan: dict[str, int]) -> None:
    """Context parallelism has them whole, and the tower's two heads on four ranks of tp do; what one rank holds of a shard it gathers."""
    run = run_of("internvl", plan=plan, batch={"global": 8, "micro": 1, "seq_len": 64})
    assert run.tower
    of_text, of_tower = (RankShare(run=each).groups for each in (run, run.tower))
    assert (of_tower.replicas, of_tower.shard, of_tower.copies) == (of_text.replicas, of_text.shard, of_text.copies)
    assert (of_tower.cp.ranks, of_tower.tp.ranks) == (1, 1)
    (rank,) = decompose(run)
    assert any(each.block.heading == VISION for each in rank.chunks[0].forward)


def test_a_tower_that_context_parallelism_shards_is_gathered() -> None:
    (rank,) = decompose(run_of("internvl", plan={"cp": 4, "dp": 1, "zero": 3}))
    gathered = [
        call.call.ranks
        for block in _of_tower(rank.chunks[0].forward)
        for call in block.block.all_calls()
        if isinstance(call.call, AllGather)
    ]
    assert gathered and set(gathered) == {4}


@pytest.mark.parametrize("trained", ["all", "none"])
@pytest.mark.parametrize(
    ("tuning", "passes"),
    [
        ({"task": "dpo"}, {"reference": 1.0}),
        ({"task": "kto"}, {"kl_estimate": 1.0, "reference": 2.0}),
        ({"evaluated_share": 0.25}, {"evaluation": 0.25}),
        ({"task": "distill", "teacher": "internvl3-1b"}, {"teacher": 1.0}),
    ],
    ids=str,
)
def test_passes_without_a_gradient_see_the_images_too(
    tuning: dict[str, Any], passes: dict[str, float], trained: str
) -> None:
    def of_pass(heading: str, images: int) -> float:
        vision = {"images": images, "trained": trained if images else "all"}
        run = made("internvl3-1b", batch={"global": 1, "micro": 1, "seq_len": 512}, tuning=tuning, vision=vision)
        (rank,) = decompose(run)
        return flops(tuple(each for each in rank.chunks[0].forward if each.block.heading == heading))

    tower = of_pass(VISION, 1)
    for heading, many in passes.items():
        assert of_pass(heading, 1) - of_pass(heading, 0) == pytest.approx(many * tower, rel=1e-9)


def test_heads_that_ranks_do_not_divide_are_whole_on_each() -> None:
    assert [tower_of("internvl", plan__tp=tp).plan.tp for tp in (1, 2, 4)] == [1, 2, 1]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (
            {"model": "qwen2.5-7b", "vision": {"images": 1}},
            "vision.images: 1, and the vision tower of qwen2.5-7b is not known",
        ),
        (
            {"model": "qwen2.5-vl-7b", "vision": {"images": 1}},
            "vision.image_tokens: missing, and images of qwen2.5-vl-7b have any",
        ),
        ({"model": "gemma3-4b", "vision": {"images": 1, "image_tokens": 9}}, "becomes 256 tokens; omit it"),
        (
            {"model": "gemma3-4b", "vision": {"images": 17}},
            "vision.images: 17 become 4352 tokens of a sequence of batch.seq_len",
        ),
        (
            {
                "model": "qwen2.5-vl-7b",
                "vision": {"images": 8, "image_tokens": 256},
                "batch": {"global": 16, "micro": 1, "seq_len": 4096, "lengths": "constant:100"},
            },
            "vision.images: 8 become 2048 tokens of a sequence of batch.seq_len 4096, whose shortest has 100; take fewer",
        ),
        (
            {
                "model": "qwen2.5-vl-7b",
                "vision": {"images": 8, "image_tokens": 256},
                "batch": {"global": 16, "micro": 1, "seq_len": 4096, "lengths": "constant:100", "padding": "packed"},
            },
            "vision.images: 8 become 2048 tokens of a sequence of batch.seq_len 4096, whose shortest has 1600; take fewer",
        ),
        (
            {
                "model": "gemma3-4b",
                "vision": {"images": 2},
                "tuning": {"task": "distill", "teacher": "qwen2.5-vl-7b"},
            },
            "tuning.teacher: qwen2.5-vl-7b breaks vision.image_tokens: missing, and images of qwen2.5-vl-7b have any size",
        ),
        (
            {"model": "gemma3-4b", "vision": {"images": 2}, "tuning": {"task": "distill", "teacher": "llama3-8b"}},
            "tuning.teacher: llama3-8b breaks vision.images: 2, and the vision tower of llama3-8b is not known",
        ),
        (
            {"model": "llama3.2-11b-vision", "vision": {"images": 0}},
            "vision.images: 0, and layers of llama3.2-11b-vision attend to images",
        ),
        (
            {"model": "llama3.2-11b-vision", "vision": {"images": 1}, "plan": {"pp": 2}},
            "plan.pp: 2 stages: layers on each of them read what the encoder of llama3.2-11b-vision makes on the first",
        ),
        (
            {"model": "gemma3-4b", "vision": {"trained": "none", "images": 0}},
            "vision.trained: none without vision.images",
        ),
    ],
)
def test_images_that_do_not_fit_are_refused(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(problem)):
        made(**settings)


JUNK: tuple[Any, ...] = (None, 0, -1, True, "x", [], [1], [None], {}, {"a": 1}, 1.5, float("nan"), 10**30)


@pytest.mark.parametrize("name", CONFIGS)
def test_whatever_a_key_of_a_tower_holds_is_read_or_refused(name: str) -> None:
    config = CONFIGS[name]
    vision = config["vision_config"]
    for key in {
        *vision,
        "deepstack_visual_indexes",
        "fullatt_block_indexes",
        "norm_type",
        "supported_aspect_ratios",
        3,
    }:
        for value in JUNK:
            try:
                assert load_model({**config, "vision_config": {**vision, key: value}}).parameters_with_tower > 0
            except ConfigError as error:
                assert str(error)


@pytest.mark.parametrize(
    ("name", "key", "usual"),
    [
        ("gemma3", "vision_use_head", False),
        ("internvl", "use_mask_token", False),
        ("internvl", "use_mean_pooling", True),
        ("internvl", "use_absolute_position_embeddings", True),
    ],
)
def test_parts_of_a_tower_that_are_not_modelled_are_refused(name: str, key: str, usual: bool) -> None:
    def read(value: bool) -> int:
        vision = {**CONFIGS[name]["vision_config"], key: value}
        return load_model({**CONFIGS[name], "vision_config": vision}).parameters_with_tower

    assert read(usual) == load_model(CONFIGS[name]).parameters_with_tower
    with pytest.raises(ConfigError, match=f"{key}: {str(not usual).lower()} is not modelled here; omit it"):
        read(not usual)


def test_a_tower_that_cannot_be_read_is_a_fault_of_its_own() -> None:
    keys = {**CONFIGS["qwen2_5_vl"], "vision_config": {**QWEN, "out_hidden_size": 32, "num_heads": 5, "depths": 3}}
    with pytest.raises(ConfigError, match="vision_config") as found:
        load_model(keys)
    assert "vision_config.hidden_size: 24 is not a multiple of the 5 heads" in str(found.value)
    assert "vision_config.depths: unknown key" in str(found.value)


def test_a_run_with_a_teacher_is_itself_again_after_json() -> None:
    run = made("qwen3-30b-a3b", tuning={"task": "distill", "teacher": "deepseek-v3"})
    assert load_run(dump_run(run)) == run


def test_layers_that_attend_to_images_see_all_of_a_sequence() -> None:
    """Their keys and values are products over every token of every image, beside the tower's own."""
    run = run_of("mllama")
    assert run.model.mixer(run.model.kinds()[1]).reach(run.model, run.model.kinds()[1]) == IMAGES * TILES * (
        SIDE**2 + 1
    )
    tower = tower_of("mllama")
    parts = forward_parts(tower.model, {tower.batch.seq_len: tower.batch.global_}, mtp=False)
    keys = 2 * IMAGES * TILES * (SIDE**2 + 1) * 2 * 32 * 16
    assert tower_flops_per_step(run) == 3 * (sum(part.forward for part in parts) + keys)
    frozen = tower_flops_per_step(run_of("mllama", trained="none"))
    assert frozen == pytest.approx(sum(part.forward for part in parts) + 2 * keys)
    beside_adapters = tower_flops_per_step(run_of("mllama", trained="none", adapters={"kind": "lora"}))
    assert beside_adapters == pytest.approx(sum(part.forward for part in parts) + keys)


@pytest.mark.parametrize(("trained", "phases"), [("none", {"backward_weight"}), ("all", {"backward"})])
def test_what_a_frozen_tower_makes_takes_no_gradient(trained: str, phases: set[str]) -> None:
    """Nor does a layer that attends to it reduce one over tensor ranks; beside adapters its keys and values have no backward."""
    of_tower = IMAGES * TILES * (SIDE**2 + 1)

    def phases_of_keys(run: TrainingRun) -> set[str]:
        (rank,) = decompose(run)
        calls = [call for call, _ in counted(rank.chunks[0].backward)]
        return {
            call.phase
            for call in calls
            if isinstance(call.call, Gemm) and (call.call.m, call.call.n, call.call.k) == (of_tower, 32, 32)
        }

    assert phases_of_keys(run_of("mllama", trained=trained)) == phases
    beside = phases_of_keys(run_of("mllama", trained=trained, adapters={"kind": "lora", "rank": 4}))
    assert beside == (set() if trained == "none" else {"backward_input"})
    (rank,) = decompose(run_of("mllama", trained=trained, plan={"tp": 2}))
    reduced = [size for _, size, _ in collectives(rank.chunks[0].backward, "tp")]
    assert (2 * of_tower * 32 in reduced) == (trained == "all")


def test_images_of_layers_that_attend_to_them_take_no_places_of_the_text() -> None:
    run = run_of("mllama", images=5)
    assert run.batch.seq_len < 5 * TILES * SIDE**2
    assert run.tower
    assert run.tower.batch.seq_len == TILES * 72  # 65 of each tile, filled up to a multiple of 8


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"vision_config": None}, "vision_config: null is not a mapping"),
        ({"text_config": {**TEXT, "cross_attention_layers": [2]}}, "cross_attention_layers: 2 is not a layer"),
        ({"text_config": {**TEXT, "cross_attention_layers": 3}}, "cross_attention_layers: 3 is not a list"),
    ],
)
def test_a_model_whose_images_cannot_be_read_is_refused(changed: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(problem)):
        load_model({**CONFIGS["mllama"], **changed})


def test_a_text_whose_layers_attend_to_images_needs_them() -> None:
    alone = {key: value for key, value in CONFIGS["mllama"].items() if key != "vision_config"}
    for given in (alone, CONFIGS["mllama"]["text_config"]):
        with pytest.raises(ConfigError, match="vision_config: missing, and layers of mllama"):
            load_model(given)


@pytest.mark.parametrize("name", ["internvl", "gemma3", "mistral3"])
def test_the_products_of_a_tower_and_its_projectors_are_counted_over_the_tokens_that_pass_them(name: str) -> None:
    """InternVL's class token has no pixels and becomes none of the text; forward and backward are three times forward."""
    tower = tower_of(name)
    parts = forward_parts(tower.model, {tower.batch.seq_len: tower.batch.global_}, mtp=False)
    assert tower_flops_per_step(run_of(name)) == 3 * sum(part.forward for part in parts)
