"""`--model … --gpus …` in place of a config."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.predict.command import Command

LARGE = ("--model", "llama3-70b", "--gpus", "64xh100")


@pytest.mark.parametrize("name", ["one-batch", "memory"])
def test_an_answer_without_a_file(name: str, tmp_path: Path, command: Command) -> None:
    file = tmp_path / "llama3-70b-64xh100.yml"
    made = command.json(name, *LARGE, "--set", "batch.micro=2", "--save-config", str(file))
    assert made.pop("config")["model"] == "llama3-70b"
    assert made == command.json(name, str(file))
