"""A log format is added by one file and its test: the example of `docs/extend.md`, in a copy of the project."""

from __future__ import annotations

import json
from pathlib import Path

from tests.project_copy import RUN, own_test, python_files, run_modules


def test_the_example_is_one_file_and_one_test() -> None:
    assert python_files("log_format") == {
        "predict/measured_runs/logs/nanogpt.py",
        "tests/predict/measured_runs/logs/test_nanogpt.py",
    }


def test_a_calibration_is_fitted_to_a_log_of_the_format(project_copy: Path) -> None:
    lines = (f"iter {step}: loss 2.5, time {15_000 + step % 3:.2f}ms, mfu 40.00%" for step in range(20))
    (project_copy / "nanogpt.log").write_text("\n".join(lines))
    fitted, _ = run_modules(
        project_copy,
        ("predict", "calibrate", RUN, "--measured", "nanogpt.log", "--dry-run", "--json"),
        own_test("tests/predict/measured_runs/logs/test_nanogpt.py"),
    )
    assert "nanogpt.log (nanoGPT, " in json.dumps(json.loads(fitted))
