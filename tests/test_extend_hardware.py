"""Hardware is added by one file: the example of `docs/extend.md`, in a copy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.project_copy import project_with, run_module

RUN = "configs/runs/llama3-70b-64xh100.yml"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return project_with("hardware", tmp_path_factory.mktemp("project"))


def step_us(project: Path, hardware: str) -> float:
    result = json.loads(
        run_module(project, "predict", "one-batch", RUN, f"--set=cluster.hardware={hardware}", "--json")
    )
    return float(result["step_time_us"]["median"])


def test_a_run_names_the_hardware_and_takes_longer_on_a_slower_device(project: Path) -> None:
    assert step_us(project, "a40") > 2 * step_us(project, "h100-sxm")


def test_the_example_s_own_test_passes(project: Path) -> None:
    run_module(project, "pytest", "-q", "-p", "no:cacheprovider", "tests/sampling/hardware/test_a40.py")
