"""What a real step of each kind does is what its prediction counts: the FLOPs of its products and the weights that AdamW updates."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from predict.huggingface.config_json import load_model
from predict.measurement.decoder import Training
from predict.measurement.requirements import require_measurable
from predict.measurement.training import build_training
from predict.run.adapters import Adapters
from predict.run.training_run import TrainingRun
from predict.run.vision import Vision
from predict.workload.decompose import RankCalls, decompose
from sampling.operators.gemm import Gemm
from sampling.operators.optimizer import AdamW
from tests.predict.huggingface.families.test_bert import BERT
from tests.predict.layers.test_mamba import NEMOTRON
from tests.tiny_runs import LLAMA, tiny_run

TEXT = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
}
PIXTRAL = {
    "model_type": "mistral3",
    "text_config": {"model_type": "mistral", "head_dim": 8, "sliding_window": None, **TEXT},
    "vision_config": {
        "model_type": "pixtral",
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "patch_size": 4,
        "image_size": 32,
    },
}
QWEN = {
    "model_type": "qwen2_vl",
    **TEXT,
    "vision_config": {
        "model_type": "qwen2_vl",
        "depth": 2,
        "embed_dim": 24,
        "hidden_size": 32,
        "num_heads": 4,
        "mlp_ratio": 2,
        "patch_size": 2,
    },
}
VISION = {
    "depth": 2,
    "hidden_size": 24,
    "intermediate_size": 40,
    "out_hidden_size": 32,
    "num_heads": 4,
    "patch_size": 2,
}
QWEN_OF_WINDOWS = {
    "model_type": "qwen2_5_vl",
    **TEXT,
    "vision_config": {
        "model_type": "qwen2_5_vl",
        **VISION,
        "window_size": 4,
        "fullatt_block_indexes": [1],
    },
}
QWEN_DEEP = {
    "model_type": "qwen3_vl",
    "text_config": {"model_type": "qwen3_vl_text", "head_dim": 8, **TEXT},
    "vision_config": {
        "model_type": "qwen3_vl",
        **VISION,
        "num_position_embeddings": 16,
        "deepstack_visual_indexes": [0],
    },
}
GEMMA = {
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text",
        "head_dim": 8,
        "sliding_window": 64,
        "sliding_window_pattern": 2,
        **TEXT,
    },
    "mm_tokens_per_image": 4,
    "vision_config": {
        "model_type": "siglip_vision_model",
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "image_size": 16,
        "patch_size": 4,
    },
}
INTERN = {
    "model_type": "internvl",
    "text_config": {"model_type": "qwen2", **TEXT},
    "image_seq_length": 4,
    "vision_config": {
        "model_type": "internvl_vision",
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "attention_bias": True,
        "image_size": 16,
        "patch_size": 4,
    },
}
IMAGES = Vision(images=2, image_tokens=3)
LORA = Adapters(kind="lora", rank=3)
SEQ_LEN = 16


def of(config: dict[str, Any], **sections: Any) -> TrainingRun:
    return replace(tiny_run(load_model(config), batch=(4, 2, SEQ_LEN)), **sections)


ADAPTED = replace(tiny_run(LLAMA, batch=(4, 2, SEQ_LEN)), adapters=LORA)
RUNS = {
    "adapters": ADAPTED,
    "adapters of some": replace(ADAPTED, adapters=replace(LORA, targets="q_proj,v_proj,mlp")),
    "encoder": of(BERT),
    "adapters of an encoder": of(BERT, adapters=LORA),
    "hybrid": of(NEMOTRON),
    "images": of(PIXTRAL, vision=IMAGES),
    "images, fused product": of(QWEN, vision=IMAGES),
    "images, windows": of(QWEN_OF_WINDOWS, vision=IMAGES),
    "images, between layers too": of(QWEN_DEEP, vision=IMAGES),
    "images, pooled, and four norms": of(GEMMA, vision=Vision(images=2)),
    "images, class tokens and scales": of(INTERN, vision=Vision(images=2)),
    "images, projector": of(QWEN, vision=replace(IMAGES, trained="projector")),
    "images, frozen tower": of(PIXTRAL, vision=replace(IMAGES, trained="none")),
    "images, adapters": of(PIXTRAL, vision=IMAGES, adapters=LORA),
}
PRODUCTS = (torch.ops.aten.mm, torch.ops.aten.addmm)


def calls_of(run: TrainingRun) -> RankCalls:
    (rank,) = decompose(run)
    return rank


def predicted_products(run: TrainingRun) -> float:
    """FLOPs of the products of a step."""
    (chunk,) = calls_of(run).chunks
    return run.microbatches * sum(
        repeated.count * one.count * one.call.flops(one.phase)
        for repeated in (*chunk.forward, *chunk.backward)
        for one in repeated.block.calls
        if isinstance(one.call, Gemm)
    )


def without_input_gradient(run: TrainingRun) -> float:
    """FLOPs of the gradients of the first layer's input, which nothing before it needs beside adapters: those of query, key and value,
    and of what is before their updates."""
    if not run.adapters.are_trained:
        return 0.0
    model, images = run.model, run.vision.images
    if images:
        return 0.0  # the tower's tokens need them
    attention = [matrix for matrix in model.attention.matrices(model) if matrix.product == "qkv"]
    updates = [run.adapters.rank * matrix.inputs for matrix in attention if run.adapters.cover(matrix, "attention")]
    tokens = run.batch.global_ * run.batch.seq_len
    return 2.0 * tokens * (sum(matrix.elements for matrix in attention) + sum(updates))


@cache
def one_step(name: str) -> tuple[Training, float, float]:
    """A run's training after one step, the FLOPs of that step's products, and its loss."""
    require_measurable(RUNS[name], "torch")
    training = build_training(RUNS[name])
    with FlopCounterMode(display=False) as counter:
        loss = training.step()
    assert loss is not None
    counts = counter.get_flop_counts()["Global"]
    return training, sum(counts.get(product, 0) for product in PRODUCTS), loss.item()


@pytest.mark.parametrize("name", RUNS)
def test_a_real_step_runs_the_products_that_are_predicted(name: str) -> None:
    _, flops, _ = one_step(name)
    assert flops == predicted_products(RUNS[name]) - without_input_gradient(RUNS[name])


@pytest.mark.parametrize("name", RUNS)
def test_a_real_step_updates_the_weights_that_are_predicted(name: str) -> None:
    module = one_step(name)[0].module
    trained = [weight for weight in module.parameters() if weight.requires_grad]
    assert all(weight.grad is not None for weight in trained)
    assert all(weight.grad is None for weight in module.parameters() if not weight.requires_grad)
    (update,) = (one.call for one in calls_of(RUNS[name]).end.optimizer)
    assert isinstance(update, AdamW)
    assert (update.parameters, update.tensors) == (sum(each.numel() for each in trained), len(trained))


@pytest.mark.parametrize("name", RUNS)
def test_a_real_step_trains(name: str) -> None:
    training, _, first = one_step(name)
    losses = [loss.item() for loss in (training.step() for _ in range(4)) if loss is not None]
    assert losses[-1] < first
