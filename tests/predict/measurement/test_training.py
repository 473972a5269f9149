"""Every parallelism trains the same model: losses, gradients and parameters agree with one process."""

import json
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from predict.measurement.training import build_training
from predict.model.spec import ModelSpec
from predict.run.plan import Plan
from sampling.ranks.launch import launch
from tests.predict.measurement.train_variants import GPT, LLAMA, VARIANTS, run_of, trajectory

CASES = [(model, name) for model in (LLAMA, GPT) for name, plan in VARIANTS.items() if not (model.tied and plan.pp > 1)]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory, warm_python: Path) -> list[dict[str, Any]]:
    """What each of two ranks saw, by variant; all of them in one launch."""
    folder = tmp_path_factory.mktemp("variants")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", str(warm_python))
        worker = ["-m", "tests.predict.measurement.train_variants", str(folder)]
        launch(worker, name="variants", processes=2, threads=1, timeout_s=100)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


@cache
def alone(model: ModelSpec) -> dict[str, Any]:
    return trajectory(run_of(Plan(), model))


def count(spec: ModelSpec) -> int:
    """Parameters of a whole model by its shape."""
    query, key_value = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
    attention = 2 * spec.hidden * (query + key_value) + spec.attention_bias * (query + 2 * key_value + spec.hidden)
    matrices = 3 if spec.gated else 2
    mlp = matrices * spec.hidden * spec.ffn + spec.mlp_bias * ((matrices - 1) * spec.ffn + spec.hidden)
    norm = spec.hidden * (2 if spec.norm == "layer" else 1)
    positions = 0 if spec.rope else spec.max_positions * spec.hidden
    vocabulary = spec.vocab * spec.hidden * (1 if spec.tied else 2)
    return vocabulary + positions + spec.layers * (attention + mlp + 2 * norm) + norm


@pytest.mark.parametrize(("model", "name"), CASES, ids=[f"{model.name} {name}" for model, name in CASES])
def test_losses_are_those_of_one_process(seen: list[dict[str, Any]], model: ModelSpec, name: str) -> None:
    ranks = [each[f"{model.name} {name}"]["losses"] for each in seen]
    known = [losses for losses in ranks if None not in losses]
    assert len(known) == (1 if VARIANTS[name].pp > 1 else 2)
    means = [sum(step) / len(step) for step in zip(*known, strict=True)]
    assert means == pytest.approx(alone(model)["losses"], abs=1e-4)


@pytest.mark.parametrize("name", ["dp", "dp zero"])
def test_replicas_hold_the_gradient_of_the_whole_batch(seen: list[dict[str, Any]], name: str) -> None:
    for each in seen:
        assert each[f"{LLAMA.name} {name}"]["gradient_square"] == pytest.approx(
            alone(LLAMA)["gradient_square"], rel=1e-4
        )


@pytest.mark.parametrize("name", [name for name, plan in VARIANTS.items() if plan.pp > 1])
def test_stages_share_the_gradient_of_the_whole_batch(seen: list[dict[str, Any]], name: str) -> None:
    total = sum(each[f"{LLAMA.name} {name}"]["gradient_square"] for each in seen)
    assert total == pytest.approx(alone(LLAMA)["gradient_square"], rel=1e-4)


@pytest.mark.parametrize("model", [LLAMA, GPT], ids=lambda model: model.name)
def test_parameters_are_counted_by_shape(seen: list[dict[str, Any]], model: ModelSpec) -> None:
    assert alone(model)["parameters"] == count(model)
    held = [each[f"{model.name} tp"]["parameters"] for each in seen]
    assert held[0] == held[1]
    assert count(model) / 2 < held[0] < 0.55 * count(model), "matrices are halved, norms and row biases are not"


def test_first_stages_take_the_layers_that_do_not_divide(seen: list[dict[str, Any]]) -> None:
    stages = [each[f"{LLAMA.name} pp 1f1b"]["parameters"] for each in seen]
    assert sum(stages) == count(LLAMA)
    layer = (count(LLAMA) - 2 * LLAMA.vocab * LLAMA.hidden - LLAMA.hidden) // LLAMA.layers
    assert stages[0] - stages[1] == layer - LLAMA.hidden, "three layers against two, and the last stage's norm"


def test_training_lowers_the_loss_from_chance() -> None:
    first, *_, last = alone(LLAMA)["losses"]
    assert first == pytest.approx(4.16, abs=0.05), "ln 64: at first every token is as likely"
    assert last < first - 0.05


def test_recomputation_changes_no_loss() -> None:
    assert trajectory(run_of(Plan(recompute="full")))["losses"] == pytest.approx(alone(LLAMA)["losses"], abs=1e-6)


def test_bf16_trains_too() -> None:
    loss = build_training(replace(run_of(Plan()), precision="bf16")).step()
    assert loss is not None
    assert loss.item() == pytest.approx(alone(LLAMA)["losses"][0], abs=0.02)
