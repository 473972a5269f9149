"""A model family is added by one file and its test: the example of `docs/extend.md`, in a copy of the project."""

from __future__ import annotations

import json
from pathlib import Path

from tests.project_copy import RUN, own_test, python_files, run_modules


def test_the_example_is_one_file_and_one_test() -> None:
    assert python_files("model_family") == {
        "predict/huggingface/families/granite.py",
        "tests/predict/huggingface/families/test_granite.py",
    }


def test_a_run_of_the_family_is_predicted(project_copy: Path) -> None:
    config = (project_copy / RUN).read_text().replace("model: llama3-70b", "model: ../models/granite-3.1-8b.json")
    (project_copy / "configs/runs/granite.yml").write_text(config)
    output, _ = run_modules(
        project_copy,
        ("predict", "one-batch", "configs/runs/granite.yml", "--json"),
        own_test("tests/predict/huggingface/families/test_granite.py"),
    )
    assert json.loads(output)["step_time_us"]["median"] > 0
