"""A mixer with a cache of its own is added by four files: the example of `docs/extend.md`, in a copy of the project."""

from __future__ import annotations

import json
from pathlib import Path

from tests.project_copy import RUN, own_test, python_files, run_modules

SERVER = "configs/serving/llama3-8b-h100.yml"
ON_EIGHT = ("--set=placement.tp=8", "--set=placement.precision=fp8")
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


def test_a_mixer_with_a_cache_of_its_own_is_four_files_and_a_test() -> None:
    """Training, memory and serving: an operator with its torch mirror, the mixer, and a family of models that has it."""
    assert python_files("mixer") == {
        "sampling/operators/lightning_attention.py",
        "sampling/torch_work/operators/lightning_attention.py",
        "predict/layers/lightning.py",
        "predict/huggingface/families/minimax.py",
        "tests/predict/layers/test_lightning.py",
    }


def test_the_mixer_has_a_step_time_memory_by_kind_of_layer_and_servers(project_copy: Path) -> None:
    (project_copy / "configs/models/minimax-text-01.json").write_text(json.dumps(MODEL))
    config = (project_copy / RUN).read_text().replace("model: llama3-70b", "model: ../models/minimax-text-01.json")
    (project_copy / "configs/runs/minimax.yml").write_text(config)
    options = ("configs/runs/minimax.yml", "--set=plan.ep=8", "--json")
    served = (project_copy / SERVER).read_text().replace("model: llama3-8b", "model: ../models/minimax-text-01.json")
    (project_copy / "configs/serving/minimax.yml").write_text(served)
    *outputs, _ = run_modules(
        project_copy,
        ("predict", "one-batch", *options),
        ("predict", "memory", *options),
        ("predict", "serving-step", "configs/serving/minimax.yml", *ON_EIGHT, "--decodes=16x4000", "--json"),
        own_test("tests/predict/layers/test_lightning.py"),
    )
    step, memory, server_step = (json.loads(output) for output in outputs)
    assert step["step_time_us"]["median"] > 0
    assert {"full_moe", "lightning_attention_moe"} <= {unit["unit"] for unit in memory["layers"]}
    assert server_step["models"][0]["step_us"]["median"] > 0
