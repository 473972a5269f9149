"""A schedule is added by one file and its test: the example of `docs/extend.md`, in a copy of the project."""

from __future__ import annotations

import json
from pathlib import Path

from tests.project_copy import RUN, own_test, python_files, run_modules


def test_the_example_is_one_file_and_one_test() -> None:
    assert python_files("schedule") == {
        "predict/schedules/families/eager_1f1b.py",
        "tests/predict/schedules/families/test_eager_1f1b.py",
    }


def test_the_schedule_is_compared_with_the_others_and_a_run_takes_it_by_its_name(project_copy: Path) -> None:
    counts = ("--pp", "4", "--microbatches", "16", "--p2p", "0.5", "--schedule", "all", "--json")
    compared, predicted, _ = run_modules(
        project_copy,
        ("predict", "schedule", *counts),
        ("predict", "one-batch", RUN, "--set=plan.vpp=1", "--set=plan.schedule=eager-1f1b", "--json"),
        own_test("tests/predict/schedules/families/test_eager_1f1b.py"),
    )
    times = {each["name"]: each.get("makespan") for each in json.loads(compared)["schedules"]}
    assert times["eager-1f1b"] < times["1f1b"]
    assert json.loads(predicted)["step_time_us"]["median"] > 0
