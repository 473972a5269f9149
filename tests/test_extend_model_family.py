"""A model family is added by one file and its test: the example of `docs/extend.md`, in a copy of the project."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.project_copy import EXAMPLES, project_with, run_module

RUN = "configs/runs/llama3-70b-64xh100.yml"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return project_with("model_family", tmp_path_factory.mktemp("project"))


def test_the_example_is_one_file_and_one_test() -> None:
    files = {str(path.relative_to(EXAMPLES / "model_family")) for path in (EXAMPLES / "model_family").rglob("*.py")}
    assert files == {"predict/model/families/granite.py", "tests/predict/model/test_granite.py"}


def test_a_run_of_the_family_is_predicted(project: Path) -> None:
    config = (project / RUN).read_text().replace("llama3-70b.json", "granite-3.1-8b.json")
    (project / "configs/runs/granite.yml").write_text(config)
    result = json.loads(run_module(project, "predict", "one-batch", "configs/runs/granite.yml", "--json"))
    assert result["step_time_us"]["median"] > 0


def test_the_example_s_own_test_passes(project: Path) -> None:
    run_module(project, "pytest", "-q", "-p", "no:cacheprovider", "tests/predict/model/test_granite.py")
