"""A memory profile is added by a section of a framework's file: the example of `docs/extend.md`, in a copy."""

from __future__ import annotations

import json
from pathlib import Path

from tests.project_copy import ONE_STAGE, RUN, own_test, run_modules


def test_a_framework_with_the_profile_keeps_its_activations_that_way(project_copy: Path) -> None:
    memory = ("predict", "memory", RUN, *ONE_STAGE, "--set=plan.zero=3", "--json")
    *outputs, _ = run_modules(
        project_copy,
        (*memory, "--set=execution.framework=fsdp-compile"),
        (*memory, "--set=execution.framework=fsdp-liger"),
        own_test("tests/predict/memory/test_liger.py"),
    )
    plain, liger = (json.loads(output) for output in outputs)
    assert (plain["memory_profile"], liger["memory_profile"]) == ("fsdp2-compile", "liger")
    of_plain, of_liger = (
        unit["activations"] for memory in (plain, liger) for unit in memory["layers"] if unit["unit"] == "head"
    )
    logits = 4 * 8192 * 128256
    assert of_plain - of_liger == logits
