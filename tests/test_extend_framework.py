"""A framework is added by one file: the example of `docs/extend.md`, in a copy of the project."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.project_copy import project_with, run_module

RUN = "configs/runs/llama3-70b-64xh100.yml"
ONE_STAGE = ("plan.tp=1", "plan.sp=false", "plan.pp=1", "plan.vpp=1", "plan.cp=1", "plan.schedule=1f1b", "plan.dp=64")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return project_with("framework", tmp_path_factory.mktemp("project"))


def step_ms(project: Path, framework: str) -> float:
    settings = [f"--set={setting}" for setting in (*ONE_STAGE, "plan.zero=3", f"execution.framework={framework}")]
    result = json.loads(run_module(project, "predict", "one-batch", RUN, *settings, "--json"))
    return float(result["step_time_us"]["median"]) / 1e3


def test_the_framework_is_predicted_with_its_own_settings(project: Path) -> None:
    assert step_ms(project, "transformers-trainer") != step_ms(project, "fsdp")


def test_the_example_s_own_test_passes(project: Path) -> None:
    run_module(project, "pytest", "-q", "-p", "no:cacheprovider", "tests/predict/run/test_transformers_trainer.py")
