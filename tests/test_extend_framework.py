"""A framework is added by one file: the example of `docs/extend.md`, in a copy of the project."""

from __future__ import annotations

import json
from pathlib import Path

from tests.project_copy import ONE_STAGE, RUN, own_test, run_modules


def test_the_framework_is_predicted_with_its_own_settings(project_copy: Path) -> None:
    one_batch = ("predict", "one-batch", RUN, *ONE_STAGE, "--set=plan.zero=3", "--json")
    *outputs, _ = run_modules(
        project_copy,
        (*one_batch, "--set=execution.framework=transformers-trainer"),
        (*one_batch, "--set=execution.framework=fsdp"),
        own_test("tests/predict/run/test_transformers_trainer.py"),
    )
    added, fsdp = (json.loads(output)["step_time_us"]["median"] for output in outputs)
    assert added != fsdp
