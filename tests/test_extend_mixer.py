"""A mixer is added by one file per layer of the house: the example of `docs/extend.md`, in a copy of the project."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.project_copy import EXAMPLES, project_with, run_module

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


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = project_with("mixer", tmp_path_factory.mktemp("project"))
    (place / "configs/models/minimax-text-01.json").write_text(json.dumps(MODEL))
    run = (place / "configs/runs/llama3-70b-64xh100.yml").read_text()
    (place / "configs/runs/minimax.yml").write_text(run.replace("llama3-70b.json", "minimax-text-01.json"))
    return place


def test_the_example_is_one_file_per_layer_of_the_house_and_a_test() -> None:
    files = {str(path.relative_to(EXAMPLES / "mixer")) for path in (EXAMPLES / "mixer").rglob("*.py")}
    assert files == {
        "sampling/operators/lightning_attention.py",
        "sampling/torch_work/operators/lightning_attention.py",
        "predict/model/parts/lightning_attention.py",
        "predict/model/families/minimax.py",
        "predict/workload/layers/lightning_attention.py",
        "predict/memory/components/lightning_attention.py",
        "tests/predict/workload/test_lightning_attention.py",
    }


def test_a_run_with_the_mixer_is_predicted(project: Path) -> None:
    settings = ("--set=plan.ep=8", "--json")
    result = json.loads(run_module(project, "predict", "one-batch", "configs/runs/minimax.yml", *settings))
    assert result["step_time_us"]["median"] > 0


def test_its_memory_is_told_by_kind_of_layer(project: Path) -> None:
    settings = ("--set=plan.ep=8", "--json")
    result = json.loads(run_module(project, "predict", "memory", "configs/runs/minimax.yml", *settings))
    assert {"full_moe", "lightning_attention_moe"} <= {unit["unit"] for unit in result["layers"]}


def test_the_example_s_own_test_passes(project: Path) -> None:
    run_module(project, "pytest", "-q", "-p", "no:cacheprovider", "tests/predict/workload/test_lightning_attention.py")
