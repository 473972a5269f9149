"""The hardware of a run config: an entry of the catalogue or a file, with every fault of it reported beside the others."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from predict.config import load as config
from sampling.errors import ConfigError
from sampling.files.places import CONFIGS

DEMO = CONFIGS / "models" / "demo-llama.json"


def run(folder: Path, hardware: str, precision: str = "bf16", plan: str = "{pp: 2}") -> Path:
    path = folder / "run.yml"
    path.write_text(
        f"model: {DEMO}\ncluster: {{hardware: {hardware}, nodes: 1, gpus_per_node: 2, profile: none}}\n"
        f"plan: {plan}\nbatch: {{global: 8, micro: 2, seq_len: 128}}\nprecision: {precision}\n"
    )
    return path


def refusal(path: Path) -> list[str]:
    with pytest.raises(ConfigError) as error:
        config.load(path)
    return str(error.value).splitlines()


def test_a_run_may_name_a_file_of_hardware_beside_it(tmp_path: Path) -> None:
    facts = yaml.safe_load((CONFIGS / "hardware" / "h200.yml").read_text()) | {"name": "my GPU"}
    (tmp_path / "mine.yml").write_text(yaml.safe_dump(facts))
    path = run(tmp_path, "./mine.yml")
    assert config.load(path).cluster.gpu.name == "my GPU"
    assert config.load(path, ["cluster.hardware=mine.yml"]).cluster.gpu.name == "my GPU"


def test_faults_of_a_hardware_file_are_reported_with_those_of_the_run(tmp_path: Path) -> None:
    facts = yaml.safe_load((CONFIGS / "hardware" / "h200.yml").read_text()) | {"memory_gib": -1, "cache_mib": "big"}
    (tmp_path / "mine.yml").write_text(yaml.safe_dump(facts))
    reported = refusal(run(tmp_path, "mine.yml", plan="{pp: 3}"))
    assert [line for line in reported if "cluster.hardware: " in line and "mine.yml: memory_gib: -1" in line]
    assert [line for line in reported if "cluster.hardware: " in line and "mine.yml: cache_mib: 'big'" in line]
    assert [line for line in reported if ": plan.dp: " in line]


def test_an_unknown_device_says_how_to_describe_it(tmp_path: Path) -> None:
    (line,) = refusal(run(tmp_path, "h300"))
    assert line.startswith(f"{tmp_path / 'run.yml'}: cluster.hardware: hardware 'h300'")
    assert "configs/hardware/h300.yml" in line
    assert "peak_tflops" in line


def test_a_precision_that_the_hardware_lacks_is_refused(tmp_path: Path) -> None:
    (line,) = refusal(run(tmp_path, "a100-80gb", precision="fp8"))
    assert "precision: NVIDIA A100-SXM4-80GB does not compute in fp8" in line
