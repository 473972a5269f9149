"""A schedule is added by one file and its test: the example of `docs/extend.md`, in a copy of the project."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.project_copy import EXAMPLES, project_with, run_module


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return project_with("schedule", tmp_path_factory.mktemp("project"))


def test_the_example_is_one_file_and_one_test() -> None:
    files = {str(path.relative_to(EXAMPLES / "schedule")) for path in (EXAMPLES / "schedule").rglob("*.py")}
    assert files == {"predict/schedules/families/eager_1f1b.py", "tests/predict/schedules/test_eager_1f1b.py"}


def test_the_schedule_is_compared_with_the_others(project: Path) -> None:
    counts = ("--pp", "4", "--microbatches", "16", "--p2p", "0.5", "--schedule", "all", "--json")
    schedules = json.loads(run_module(project, "predict", "schedule", *counts))["schedules"]
    times = {each["name"]: each["makespan"] for each in schedules if each.get("makespan") is not None}
    assert times["eager-1f1b"] < times["1f1b"]


def test_a_run_takes_it_by_its_name(project: Path) -> None:
    run = "configs/runs/llama3-70b-64xh100.yml"
    settings = ("--set=plan.vpp=1", "--set=plan.schedule=eager-1f1b")
    assert (
        json.loads(run_module(project, "predict", "one-batch", run, *settings, "--json"))["step_time_us"]["median"] > 0
    )


def test_the_example_s_own_test_passes(project: Path) -> None:
    run_module(project, "pytest", "-q", "-p", "no:cacheprovider", "tests/predict/schedules/test_eager_1f1b.py")
