"""`--model … --gpus …` in place of a config."""

from pathlib import Path

import pytest

from sampling.files.places import CONFIGS
from tests.predict.command import Command

LARGE = ("--model", "llama3-70b", "--gpus", "64xh100")


@pytest.mark.parametrize("name", ["one-batch", "memory"])
def test_an_answer_without_a_file(name: str, tmp_path: Path, command: Command) -> None:
    file = tmp_path / "llama3-70b-64xh100.yml"
    made = command.json(name, *LARGE, "--set", "batch.micro=2", "--save-config", str(file))
    assert made.pop("config")["model"] == "llama3-70b"
    assert made == command.json(name, str(file))


def test_a_repositorys_name_says_which_shipped_model_stands_for_it(command: Command) -> None:
    note = "odel: anyorg/Llama-3-70B-Instruct is read as the shipped llama3-70b, by its name alone"
    asked = ("memory", "--model", "anyorg/Llama-3-70B-Instruct", "--gpus", "64xh100")
    assert note in " ".join(command.text(*asked).split())
    assert any(note in each for each in command.json(*asked)["provenance"]["notes"])
    assert "is read as" not in command.text("memory", *LARGE)


@pytest.mark.parametrize(
    "words",
    [
        ("one-batch", str(CONFIGS / "runs" / "demo.yml")),
        ("serving-step", str(CONFIGS / "serving" / "llama3-8b-h100.yml"), "--decodes", "64x800"),
    ],
)
def test_a_repositorys_name_in_a_config_says_the_same(words: tuple[str, ...], command: Command) -> None:
    asked = (*words, "--set", "model=Qwen/Qwen2-0.5B")
    assert "Qwen/Qwen2-0.5B is read as the shipped qwen2.5-0.5b" in " ".join(command.text(*asked).split())
    assert "Qwen/Qwen2-0.5B is read as the shipped qwen2.5-0.5b" in str(command.json(*asked))
    assert "is read as" not in command.text(*words)


def test_what_states_no_notes_says_it_beside_its_answer(tmp_path: Path, command: Command) -> None:
    note = "Qwen/Qwen2-0.5B is read as the shipped qwen2.5-0.5b"
    demo = (str(CONFIGS / "runs" / "demo.yml"), "--set", "model=Qwen/Qwen2-0.5B")
    assert note in command.notes("export", *demo, "--to", "megatron-lm")
    assert note in command.notes("search", *demo, "--set", "plan.schedule=[afab,1f1b]", "--json")


def test_a_search_that_finds_nothing_names_as_many_nodes_as_a_config_made_of_the_model(command: Command) -> None:
    """That is 24xh100, as the kept answers of `one-batch --model` have it."""
    said = command.refused("search", "--model", "llama3-70b", "--gpus", "8xh100", code=4)
    assert "take 3 nodes in place of 1" in said
