"""`--model … --gpus …` in place of a config."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from predict.cli import main

LARGE = ("--model", "llama3-70b", "--gpus", "64xh100")


@pytest.mark.parametrize("command", ["one-batch", "memory"])
def test_an_answer_without_a_file(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "llama3-70b-64xh100.yml"
    assert main([command, *LARGE, "--set", "batch.micro=2", "--json", "--save-config", str(file)]) == 0
    made = json.loads(capsys.readouterr().out)
    assert main([command, str(file), "--json"]) == 0
    assert made.pop("config")["model"] == "llama3-70b"
    assert made == json.loads(capsys.readouterr().out)
