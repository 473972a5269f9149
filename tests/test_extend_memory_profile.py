"""A memory profile is added by one file, and a framework's file names it: the example of `docs/extend.md`, in a copy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.project_copy import project_with, run_module

ONE_GPU = ("plan.tp=1", "plan.sp=false", "plan.pp=1", "plan.vpp=1", "plan.cp=1", "plan.schedule=1f1b", "plan.dp=64")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return project_with("memory_profile", tmp_path_factory.mktemp("project"))


def memory_of_head(project: Path, framework: str) -> dict[str, Any]:
    settings = [f"--set={setting}" for setting in (*ONE_GPU, "plan.zero=3", f"execution.framework={framework}")]
    run = json.loads(
        run_module(project, "predict", "memory", "configs/runs/llama3-70b-64xh100.yml", *settings, "--json")
    )
    (head,) = (unit for unit in run["layers"] if unit["unit"] == "head")
    return {"profile": run["profile"], "head": head["activations"]}


def test_a_framework_that_names_the_profile_keeps_its_activations_that_way(project: Path) -> None:
    plain, liger = (memory_of_head(project, framework) for framework in ("fsdp-compile", "fsdp-liger"))
    assert (plain["profile"], liger["profile"]) == ("fsdp2-compile", "liger")
    logits = 4 * 8192 * 128256
    assert plain["head"] - liger["head"] == logits


def test_the_example_s_own_test_passes(project: Path) -> None:
    run_module(project, "pytest", "-q", "-p", "no:cacheprovider", "tests/predict/memory/test_liger.py")
