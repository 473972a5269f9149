"""The commands of what-if and of other tools, as their user runs them."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from predict.cli import main
from sampling.files.places import CONFIGS

LLAMA, DEMO = (str(CONFIGS / "runs" / f"{name}.yml") for name in ("llama3-70b-64xh100", "demo"))


def test_sweep_shows_writes_and_tells_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "sweep.csv"
    arguments = ["sweep", LLAMA, "--vary", "plan.tp=1,4", "--output", str(output)]
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert "2 combinations, 1 can run" in text
    assert "plan.sp: true needs plan.tp above 1" in text
    assert main([*arguments, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["varied"] == {"plan.tp": [1, 4]}
    read = list(csv.DictReader(output.read_text().splitlines()))
    assert float(read[1]["t_step"]) == content["rows"][1]["t_step"]
    assert read[0]["reason"] == content["rows"][0]["reason"] != ""


def test_the_changes_of_the_terms_of_a_comparison_add_up_to_that_of_the_step(
    capsys: pytest.CaptureFixture[str],
) -> None:
    other = str(CONFIGS / "runs" / "deepseek-v3-1024xh100.yml")
    assert main(["compare", LLAMA, other, "--json"]) == 0
    (difference,) = json.loads(capsys.readouterr().out)["others"]
    assert sum(difference["change_us"].values()) == pytest.approx(difference["step_change_us"])


def test_export_and_import_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", LLAMA, "--to", "megatron-lm", "--output", str(tmp_path)]) == 0
    script = tmp_path / "llama3-70b-64xh100.megatron-lm.sh"
    told = capsys.readouterr()
    assert told.out == ""
    assert "not expressed: execution.framework: 'nemo'" in told.err
    read = ["import-config", str(script), "--set", "cluster.hardware=h100"]
    assert main([*read, "--output", str(tmp_path / "run.yml")]) == 0
    assert main(["one-batch", str(tmp_path / "run.yml")]) == 0
    capsys.readouterr()
    assert main([*read, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["config"]["plan"]["vpp"] == 5
