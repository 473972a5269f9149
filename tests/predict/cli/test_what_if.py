"""The commands of what-if and of other tools, as their user runs them."""

import csv
from pathlib import Path

import pytest

from sampling.files.places import CONFIGS
from tests.predict.command import Command

LLAMA, DEMO = (str(CONFIGS / "runs" / f"{name}.yml") for name in ("llama3-70b-64xh100", "demo"))


def test_sweep_shows_writes_and_tells_the_same(tmp_path: Path, command: Command) -> None:
    output = tmp_path / "sweep.csv"
    arguments = ["sweep", LLAMA, "--vary", "plan.tp=1,4", "--output", str(output)]
    text = command.text(*arguments)
    assert "2 combinations, 1 FITS, 1 refused" in text
    assert "plan.sp: true needs plan.tp above 1" in text
    content = command.json(*arguments)
    assert content["varied"] == {"plan.tp": [1, 4]}
    read = list(csv.DictReader(output.read_text().splitlines()))
    assert float(read[1]["t_step"]) == content["rows"][1]["t_step"]
    assert read[0]["reason"] == content["rows"][0]["reason"] != ""


def test_the_changes_of_the_terms_of_a_comparison_add_up_to_that_of_the_step(command: Command) -> None:
    other = str(CONFIGS / "runs" / "deepseek-v3-1024xh100.yml")
    (difference,) = command.json("compare", LLAMA, other)["others"]
    assert sum(difference["change_us"].values()) == pytest.approx(difference["step_change_us"])


def test_export_and_import_config(tmp_path: Path, command: Command) -> None:
    answer = command.run("export", LLAMA, "--to", "megatron-lm", "--output", str(tmp_path))
    script = tmp_path / "llama3-70b-64xh100.megatron-lm.sh"
    assert answer.out == ""
    assert "not expressed: execution.framework: 'nemo'" in answer.err
    read = ["import-config", str(script), "--set", "cluster.hardware=h100"]
    command.run(*read, "--output", str(tmp_path / "run.yml"))
    command.run("one-batch", str(tmp_path / "run.yml"))
    assert command.json(*read)["config"]["plan"]["vpp"] == 5
