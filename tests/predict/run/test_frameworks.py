"""The files of frameworks: one like another, and what is wrong with a file."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from predict import estimate
from predict.model.spec import ModelSpec
from predict.run import frameworks
from predict.step.prediction import Prediction
from predict.workload.decompose import decompose
from sampling.errors import ConfigError
from sampling.hardware.cluster import hardware_facts, known_hardware
from tests.predict.measurement.gpu_runs import MIXTURE, gpu_run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(frameworks, "FOLDER", tmp_path)
    for cached in (frameworks._files, frameworks.framework_settings, frameworks.memory_profile):
        monkeypatch.setattr(frameworks, cached.__name__, cached.__wrapped__)
    (tmp_path / "base.yml").write_text(
        "{execution: {dropout: true, attention: fa2}, by_architecture: {hopper: {attention: fa3}}, memory: {name: eager}, spread: 0.1}"
    )
    return tmp_path


def test_a_framework_holds_only_what_differs_from_the_one_it_is_like(folder: Path) -> None:
    (folder / "mine.yml").write_text("{like: base, execution: {attention: cudnn}, spread: 0}")
    assert frameworks.framework_settings("mine", "hopper") == {"dropout": True, "attention": "cudnn"}
    assert frameworks.framework_settings("base", "hopper") == {"dropout": True, "attention": "fa3"}
    assert (frameworks.memory_profile("mine").name, frameworks.framework_spread("mine")) == ("eager", 0)


def test_a_memory_profile_holds_only_what_differs_from_the_one_it_is_like(folder: Path) -> None:
    (folder / "other.yml").write_text("{memory: {name: other, fused_norm: true, held_logits: 1}}")
    (folder / "same.yml").write_text("{like: base}")
    (folder / "mine.yml").write_text(
        "{like: base, memory: {name: mine, like: other, held_logits: 2, parallel_loss: null}}"
    )
    assert frameworks.memory_profile("same").name == "eager"
    mine = frameworks.memory_profile("mine")
    assert (mine.name, mine.fused_norm, mine.held_logits) == ("mine", True, 2)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("{execution: {dropout: true}}", "memory: missing; give a memory profile"),
        ("{memory: {name: eager}, execution: {drop: 1}}", "execution.drop: unknown key; did you mean 'dropout'"),
        ("{memory: {name: eager}, execution: {dropout: 1}}", "execution.dropout: 1 is not true or false"),
        (
            "{memory: {name: eager}, by_architecture: {hopper: {attention: fa9}}}",
            "by_architecture.hopper.attention: 'fa9' is not",
        ),
        (
            "{memory: {name: eager}, offers: {zeroo: [0]}}",
            "offers.zeroo: is not a key of plan or execution; did you mean 'zero'",
        ),
        ("{memory: {name: eager}, offers: {zero: [4]}}", "offers.zero: 4 is out of range"),
        ("{memory: {fused_norm: true}}", "memory.name: missing; name the profile"),
        ("{memory: {name: mine, fused_norms: true}}", "memory.fused_norms: unknown key; did you mean 'fused_norm'"),
        ("{memory: {name: mine, loss: compile}}", "memory.loss: 'compile' is not known"),
        ("{memory: {name: mine, uncompiled: bas}}", "memory.uncompiled: 'bas' is not known"),
        ("{memory: {name: mine, like: mine}}", "like: 'mine' leads back to itself"),
        ("{like: bas}", "like: 'bas' is not known; name another framework; did you mean 'base'"),
        ("{like: mine}", "like: 'mine' leads back to itself"),
    ],
)
def test_a_fault_of_a_framework_s_file_is_reported(folder: Path, content: str, fault: str) -> None:
    (folder / "mine.yml").write_text(content)
    with pytest.raises(ConfigError, match=r"mine\.yml: ") as error:
        frameworks.framework_settings("mine")
        frameworks.memory_profile("mine")
    assert fault in str(error.value)


@pytest.mark.parametrize("hardware", known_hardware())
def test_no_framework_asks_a_gpu_for_products_that_it_does_not_have(hardware: str) -> None:
    gpu = hardware_facts(hardware)
    products = {
        frameworks.framework_settings(name, gpu.architecture).get("router_product", "fp32")
        for name in frameworks.framework_names()
    }
    assert gpu.kind == "cpu" or products <= set(gpu.peak_tflops)


# Predictions of torch's own modules on one GPU move as what runs does.

MODEL = replace(
    MIXTURE, layer_kinds=(), layers=8, hidden=2048, heads=16, kv_heads=8, head_dim=128, ffn=5632, vocab=32000
)
LARGE, SMALL = (4, 4, 2048), (1, 1, 64)


def predicted(model: ModelSpec = MODEL, **settings: Any) -> Prediction:
    return estimate(gpu_run(model, **settings))


def gib(prediction: Prediction) -> float:
    return prediction.memory.point_bytes / 2**30


def test_compiled_layers_are_faster_and_keep_less() -> None:
    for batch, least in ((SMALL, 1.05), (LARGE, 1.01)):
        eager, compiled = (predicted(framework=f"torch-{name}", batch=batch) for name in ("eager", "compiled"))
        assert eager.median_us > least * compiled.median_us
        assert gib(eager) >= gib(compiled)


def test_recomputing_costs_about_a_forward_and_frees_activations() -> None:
    plain, again = (predicted(batch=LARGE, recompute=recompute) for recompute in ("none", "full"))
    assert 1.15 < again.median_us / plain.median_us < 1.4
    assert gib(again) < 0.8 * gib(plain)


def test_a_small_step_waits_for_the_host() -> None:
    """Twice the tokens in a step that the host cannot launch faster take hardly longer."""
    few, more = (predicted(batch=(1, 1, seq_len)).median_us for seq_len in (32, 64))
    assert more < 1.05 * few


def test_a_weight_takes_eighteen_bytes_and_its_gradient_is_fp32() -> None:
    """2 of weight, 12 of master and moments, 4 of gradient: what MasterAdamW keeps."""
    run = gpu_run(replace(MODEL, tied=True), batch=SMALL)
    rank = estimate(run).memory.ranks[0]
    assert rank.parameters + rank.optimizer == 14 * run.model.parameters
    assert rank.gradients == 4 * run.model.parameters


def test_weights_in_fp32_are_their_own_masters() -> None:
    """Fused AdamW alone: 28 bytes per parameter; 16-bit weights are copied from their masters too."""
    moved = {
        precision: sum(
            counted.count * counted.call.bytes_moved(counted.phase)
            for counted in decompose(gpu_run(MODEL, batch=SMALL, precision=precision))[0].end.optimizer
        )
        for precision in ("fp32", "bf16")
    }
    assert moved["bf16"] == (28 + 6) * MODEL.parameters
    assert moved["fp32"] == pytest.approx(28 * MODEL.parameters)


@pytest.mark.parametrize(("framework", "compiled"), [("torch-eager", False), ("torch-compiled", True)])
def test_what_samples_of_whole_layers_add_is_that_of_layers_run_alike(framework: str, compiled: bool) -> None:
    run = gpu_run(MODEL, framework=framework)
    wholes = {each.block.whole.call for each in decompose(run)[0].chunks[0].forward if each.block.whole}
    assert [whole.fields()["compiled"] for whole in wholes] == [compiled]
