"""Shipped models, clusters and devices by name, without a file beside the config."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from predict.config.load import load
from predict.model.shipped import shipped_model, shipped_models
from predict.run.training_run import TrainingRun
from sampling.errors import ConfigError
from sampling.files.places import CONFIGS
from sampling.hardware.cluster import device_names, hardware_entry, hardware_facts, known_hardware

RUN: dict[str, Any] = {
    "model": "llama3-8b",
    "cluster": {"hardware": "H100", "nodes": 1, "gpus_per_node": 8},
    "plan": {"tp": 2, "dp": 4},
    "batch": {"global": 8, "micro": 1, "seq_len": 4096},
    "precision": "bf16",
}


def loaded(folder: Path, **changes: object) -> TrainingRun:
    path = folder / "run.yml"
    path.write_text(yaml.safe_dump({**RUN, **changes}))
    return load(path)


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("llama3-8b", "llama3-8b"),
        ("Llama-3-8B", "llama3-8b"),
        ("meta-llama/Meta-Llama-3-70B-Instruct", "llama3-70b"),
        ("Llama-3.1-8B", "llama3-8b"),
        ("Llama-3.1-405B", "llama3.1-405b"),
        ("meta-llama/Llama-2-7b-hf", "llama2-7b"),
        ("Qwen/Qwen2.5-7B", "qwen2.5-7b"),
        ("deepseek-ai/DeepSeek-V2-Lite", "deepseek-v2-lite"),
    ],
)
def test_a_model_goes_by_its_usual_names(name: str, model: str) -> None:
    path = shipped_model(name)
    assert path is not None
    assert path.stem == model


def test_a_config_names_a_model_and_is_told_its_proper_name(tmp_path: Path) -> None:
    assert loaded(tmp_path, model="Llama-3.1-8B").model.name == "llama3-8b"


def test_no_two_models_go_by_one_name() -> None:
    assert [path.stem for name in shipped_models() if (path := shipped_model(name))] == shipped_models()


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("H100", "h100-sxm"),
        ("H100-SXM", "h100-sxm"),
        ("A100", "a100-80gb"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("RTX 4090", "rtx-4090"),
        ("MI300X", "mi300x"),
        ("h200", "h200"),
    ],
)
def test_a_device_goes_by_its_usual_names(name: str, entry: str, tmp_path: Path) -> None:
    assert hardware_entry(name) == entry
    run = loaded(tmp_path, cluster={**RUN["cluster"], "hardware": name}, precision="bf16")
    assert run.cluster.gpu.name == hardware_facts(entry).name


def test_no_two_devices_go_by_one_name() -> None:
    for entry in known_hardware():
        facts = hardware_facts(entry)
        assert {hardware_entry(name) for name in (facts.name, *device_names(entry), *facts.aliases)} == {entry}


def test_a_cluster_goes_by_the_name_of_its_file(tmp_path: Path) -> None:
    cluster = loaded(tmp_path, cluster="one-node-8xh100").cluster
    assert (cluster.world_size, cluster.profile) == (8, "one-node-8xh100")


def test_a_file_beside_the_config_is_still_a_path(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("{hardware: h200, nodes: 1, gpus_per_node: 8, profile: mine}")
    assert loaded(tmp_path, cluster="mine").cluster.profile == "mine"


@pytest.mark.parametrize(("hardware", "profile"), [("H100", "h100-sxm"), ("mi300x", "mi300x"), ("cpu", "this-machine")])
def test_a_cluster_needs_no_profile(hardware: str, profile: str, tmp_path: Path) -> None:
    cluster = {**RUN["cluster"], "hardware": hardware, "gpus_per_node": 1}
    run = loaded(tmp_path, cluster=cluster, plan={}, precision="fp32", execution={})
    assert run.cluster.profile == profile


def test_a_copied_shipped_config_is_the_same_run(tmp_path: Path) -> None:
    shipped = sorted([*(CONFIGS / "runs").rglob("*.yml"), *(CONFIGS / "searches").rglob("*.yml")])
    assert [path.name for path in shipped if "../" in path.read_text()] == []
    copy = tmp_path / "demo.yml"
    copy.write_text((CONFIGS / "runs" / "demo.yml").read_text())
    assert load(copy) == load(CONFIGS / "runs" / "demo.yml")


def test_a_path_of_no_file_is_told_the_shipped_name_that_would_do(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"model: '../models/llama3-70b.json'.*or give a shipped model .*: llama3-70b"
    ):
        loaded(tmp_path, model="../models/llama3-70b.json")
    with pytest.raises(
        ConfigError, match=r"cluster: '../c/this-machine.yml'.*a shipped cluster by its name: this-machine"
    ):
        loaded(tmp_path, cluster="../c/this-machine.yml")
