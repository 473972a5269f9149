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
    for cached in (frameworks._files, frameworks.framework_settings):
        monkeypatch.setattr(frameworks, cached.__name__, cached.__wrapped__)
    (tmp_path / "base.yml").write_text(
        "{execution: {dropout: true, attention: fa2}, by_architecture: {hopper: {attention: fa3}}, memory: eager, spread: 0.1}"
    )
    return tmp_path


def test_a_framework_holds_only_what_differs_from_the_one_it_is_like(folder: Path) -> None:
    (folder / "mine.yml").write_text("{like: base, execution: {attention: cudnn}, spread: 0}")
    assert frameworks.framework_settings("mine", "hopper") == {"dropout": True, "attention": "cudnn"}
    assert frameworks.framework_settings("base", "hopper") == {"dropout": True, "attention": "fa3"}
    assert (frameworks.memory_profile("mine"), frameworks.framework_spread("mine")) == ("eager", 0)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("{execution: {dropout: true}}", "memory: missing; name a memory profile"),
        ("{memory: eager, execution: {drop: 1}}", "execution.drop: unknown key; did you mean 'dropout'"),
        ("{memory: eager, execution: {dropout: 1}}", "execution.dropout: 1 is not true or false"),
        (
            "{memory: eager, by_architecture: {hopper: {attention: fa9}}}",
            "by_architecture.hopper.attention: 'fa9' is not",
        ),
        (
            "{memory: eager, offers: {zeroo: [0]}}",
            "offers.zeroo: is not a key of plan or execution; did you mean 'zero'",
        ),
        ("{memory: eager, offers: {zero: [4]}}", "offers.zero: 4 is out of range"),
        ("{like: bas}", "like: 'bas' is not known; name another framework; did you mean 'base'"),
        ("{like: mine}", "like: 'mine' leads back to itself"),
    ],
)
def test_a_fault_of_a_framework_s_file_is_reported(folder: Path, content: str, fault: str) -> None:
    (folder / "mine.yml").write_text(content)
    with pytest.raises(ConfigError, match=r"mine\.yml: ") as error:
        frameworks.framework_settings("mine")
    assert fault in str(error.value)


@pytest.mark.parametrize("hardware", known_hardware())
def test_no_framework_asks_a_gpu_for_products_that_it_does_not_have(hardware: str) -> None:
    gpu = hardware_facts(hardware)
    products = {
        frameworks.framework_settings(name, gpu.architecture).get("router_product", "fp32")
        for name in frameworks.framework_names()
    }
    assert gpu.kind == "cpu" or products <= set(gpu.peak_tflops)
