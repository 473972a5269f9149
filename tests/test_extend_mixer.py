"""A mixer is added by one file per layer of the house: the example of `docs/extend.md`, in a copy of the project."""

from __future__ import annotations

import json
from pathlib import Path

from tests.project_copy import RUN, own_test, python_files, run_modules

MODEL = {
    "model_type": "minimax",
    "num_hidden_layers": 80,
    "hidden_size": 6144,
    "intermediate_size": 9216,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 200064,
    "num_local_experts": 32,
    "num_experts_per_tok": 2,
    "layer_types": (["linear_attention"] * 7 + ["full_attention"]) * 10,
}
"""MiniMax-Text-01 (arXiv 2501.08313)."""


def test_the_example_is_one_file_per_layer_of_the_house_and_a_test() -> None:
    assert python_files("mixer") == {
        "sampling/operators/lightning_attention.py",
        "sampling/torch_work/operators/lightning_attention.py",
        "predict/layers/lightning.py",
        "predict/huggingface/families/minimax.py",
        "tests/predict/layers/test_lightning.py",
    }


def test_a_run_with_the_mixer_has_a_step_time_and_memory_by_kind_of_layer(project_copy: Path) -> None:
    (project_copy / "configs/models/minimax-text-01.json").write_text(json.dumps(MODEL))
    config = (project_copy / RUN).read_text().replace("model: llama3-70b", "model: ../models/minimax-text-01.json")
    (project_copy / "configs/runs/minimax.yml").write_text(config)
    options = ("configs/runs/minimax.yml", "--set=plan.ep=8", "--json")
    *outputs, _ = run_modules(
        project_copy,
        ("predict", "one-batch", *options),
        ("predict", "memory", *options),
        own_test("tests/predict/layers/test_lightning.py"),
    )
    step, memory = (json.loads(output) for output in outputs)
    assert step["step_time_us"]["median"] > 0
    assert {"full_moe", "lightning_attention_moe"} <= {unit["unit"] for unit in memory["layers"]}
