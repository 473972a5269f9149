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


def test_a_repositorys_name_says_which_shipped_model_stands_for_it(command: Command) -> None:
    said = command.notes("memory", "--model", "anyorg/Llama-3-70B-Instruct", "--gpus", "64xh100")
    assert "model: anyorg/Llama-3-70B-Instruct is read as the shipped llama3-70b, by its name alone" in said
    assert "is read as" not in command.notes("memory", *LARGE)


def test_a_search_that_finds_nothing_names_as_many_nodes_as_a_config_made_of_the_model(command: Command) -> None:
    few = ("--model", "llama3-70b", "--gpus", "8xh100")
    assert "give 24xh100" in command.refused("memory", *few, code=4)
    assert "take 3 nodes in place of 1" in command.refused("search", *few, code=4)
