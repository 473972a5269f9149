"""The files of frameworks: one like another, and what is wrong with a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from predict.run import frameworks
from sampling.errors import ConfigError
from sampling.hardware.cluster import hardware_facts, known_hardware


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
