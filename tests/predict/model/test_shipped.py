"""The shipped models: each by the name of its repository, with the parameters that its card or its weights state."""

from pathlib import Path

import pytest
import yaml

from predict.huggingface.config_json import load_model
from predict.model.shipped import notes_on_name, read_as, shipped_model, shipped_models

OWN = {
    *("demo-llama", "library-llama", "long-llama", "small-llama", "tiny-gpt", "tiny-llama", "uneven-llama"),
    *("gpu-llama-1b", "gpu-llama-3b", "gpu-llama-narrow", "gpu-llama-wide", "gpu-mixture-1b"),
}
"""Models of runs that come with the project; nobody else knows them."""
_CARDS = yaml.load(Path(__file__).with_name("model_cards.yml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
ON_THEIR_CARDS, WITH_TOWERS = _CARDS["text"], _CARDS["whole"]


@pytest.mark.parametrize("repository", WITH_TOWERS)
def test_a_model_with_a_tower_or_an_encoder_has_the_parameters_of_its_card(repository: str) -> None:
    path = shipped_model(repository)
    assert path is not None
    assert load_model(path).parameters_with_tower == pytest.approx(WITH_TOWERS[repository], rel=0.003)


@pytest.mark.parametrize("repository", ON_THEIR_CARDS)
def test_a_model_goes_by_its_repository_and_has_the_parameters_of_its_card(repository: str) -> None:
    path = shipped_model(repository)
    assert path is not None
    assert load_model(path).parameters == pytest.approx(ON_THEIR_CARDS[repository], rel=1e-3)


def test_every_shipped_model_has_a_card() -> None:
    repositories = {*ON_THEIR_CARDS, *WITH_TOWERS}
    carded = {path.stem for repository in repositories if (path := shipped_model(repository))}
    assert carded | OWN == set(shipped_models())
    assert len(carded) == len(repositories) >= 150


@pytest.mark.parametrize(
    ("repository", "model"),
    [
        ("deepseek-ai/DeepSeek-V3-0324", "deepseek-v3"),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", "qwen3-30b-a3b"),
        ("nvidia/Llama-3.1-405B-Instruct-FP8", "llama3.1-405b"),
        ("moonshotai/Kimi-K2-Instruct-0905", "kimi-k2"),
        ("MiniMaxAI/MiniMax-M2.5", "minimax-m2"),
        ("zai-org/GLM-5.1-FP8", "glm5"),
        ("mistralai/Mistral-7B-Instruct-v0.2", None),
        ("hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4", "llama3.1-70b"),
        ("unsloth/llama-3-8b-bnb-4bit", "llama3-8b"),
        ("Qwen/Qwen2.5-Coder-32B-Instruct", "qwen2.5-32b"),
        ("Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8", "qwen3-coder-480b-a35b"),
        ("Qwen/Qwen2-7B-Instruct", "qwen2.5-7b"),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-8B", "llama3.1-8b"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", None),  # its head is a matrix of its own
        ("R1-Distill-Qwen-7B", "qwen2.5-7b"),
        ("deepseek-ai/deepseek-math-7b-base", None),
    ],
)
def test_what_it_was_tuned_for_does_not_matter_but_a_version_of_other_sizes_does(
    repository: str, model: str | None
) -> None:
    path = shipped_model(repository)
    assert (path.stem if path else None) == model


def test_a_name_that_stands_for_a_model_of_its_shape_is_said() -> None:
    assert read_as("qwen2-7b").startswith("qwen2-7b is read as the shipped qwen2.5-7b")
    assert read_as("qwen2.5-7b") == read_as("./config.json") == ""


@pytest.mark.parametrize("name, alone", [("moonshotai/Kimi-K2.5", True), ("kimi-k2", False), ("qwen2.5-vl-7b", False)])
def test_a_model_whose_tower_is_not_known_is_said_to_be_its_text_alone(name: str, alone: bool) -> None:
    assert any("is the text part alone" in note for note in notes_on_name(name)) == alone
