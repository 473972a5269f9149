"""An operator is added by its arithmetic, its torch work and a test: the example of `docs/extend.md`, in a copy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.project_copy import EXAMPLES, ROOT, own_test, python_files, run_modules

ARITHMETIC = "sampling/operators/soft_cap.py"
TORCH_WORK = "sampling/torch_work/operators/soft_cap.py"
OPTIONAL = ("FUSIBLE", "BANDWIDTH", '"""The shares of GELU')


def add_operator_without_optional_properties(project: Path) -> None:
    """`plain_cap`, which is `soft_cap` without any of the properties that an operator may declare."""
    for path in (ARITHMETIC, TORCH_WORK):
        lines = (project / path).read_text().splitlines()
        kept = [line for line in lines if not line.strip().startswith(OPTIONAL)]
        assert len(lines) - len(kept) == (3 if path == ARITHMETIC else 0)
        text = "\n".join(kept).replace("soft_cap", "plain_cap").replace("SoftCap", "PlainCap")
        (project / path).with_name("plain_cap.py").write_text(text)


def test_the_example_is_its_arithmetic_its_torch_work_and_its_test() -> None:
    assert python_files("operator") == {ARITHMETIC, TORCH_WORK, "tests/sampling/operators/test_soft_cap.py"}


def test_the_page_shows_the_example_as_it_is() -> None:
    page = (ROOT / "docs" / "extend.md").read_text()
    for path in (EXAMPLES / "operator" / "sampling").rglob("*.py"):
        assert path.read_text() in page, path


def test_it_is_sampled_learnt_priced_and_in_the_ledger(project_copy: Path) -> None:
    add_operator_without_optional_properties(project_copy)
    *outputs, _ = run_modules(
        project_copy,
        ("tests.operator_everywhere", "soft_cap"),
        ("tests.operator_everywhere", "plain_cap"),
        own_test("tests/sampling/operators/test_soft_cap.py"),
    )
    for name, output in zip(("soft_cap", "plain_cap"), outputs, strict=True):
        found: dict[str, Any] = json.loads(output)
        assert found["registered"]
        assert found["survives_its_fields"]
        assert found["timed_us"].keys() == {"forward", "backward"}
        assert min(found["timed_us"].values()) > 0
        assert found["learnt"]["source"] == "measured"
        assert found["learnt"]["us"] == pytest.approx(found["expected_us"], rel=0.02)
        assert found["analytic"] == ["analytic"]
        assert found["ledger_us"].keys() == {name}
