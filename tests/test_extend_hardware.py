"""Hardware is added by one file: the example of `docs/extend.md`, in a copy of the project."""

from __future__ import annotations

import json
from pathlib import Path

from tests.project_copy import RUN, own_test, run_modules


def test_a_run_names_the_hardware_and_takes_longer_on_a_slower_device(project_copy: Path) -> None:
    one_batch = ("predict", "one-batch", RUN, "--json")
    *outputs, _ = run_modules(
        project_copy,
        (*one_batch, "--set=cluster.hardware=a40"),
        (*one_batch, "--set=cluster.hardware=h100-sxm"),
        own_test("tests/sampling/hardware/test_a40.py"),
    )
    a40_us, h100_us = (json.loads(output)["step_time_us"]["median"] for output in outputs)
    assert a40_us > 2 * h100_us
