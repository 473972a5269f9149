"""An operator is added by its arithmetic, its torch work and a test: the example of `docs/extend.md`, in a copy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.project_copy import EXAMPLES, ROOT, project_with, run_module

ARITHMETIC = "sampling/operators/soft_cap.py"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return project_with("operator", tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same operator without any of the properties that it may declare."""
    place = project_with("operator", tmp_path_factory.mktemp("plain"))
    lines = (place / ARITHMETIC).read_text().splitlines()
    optional = ("FUSIBLE", "BANDWIDTH", '"""As GELU')
    kept = [line for line in lines if not line.strip().startswith(optional)]
    assert len(kept) == len(lines) - 3
    (place / ARITHMETIC).write_text("\n".join(kept))
    return place


def test_the_example_is_its_arithmetic_its_torch_work_and_its_test() -> None:
    files = {str(path.relative_to(EXAMPLES / "operator")) for path in (EXAMPLES / "operator").rglob("*.py")}
    assert files == {
        ARITHMETIC,
        "sampling/torch_work/operators/soft_cap.py",
        "tests/sampling/operators/test_soft_cap.py",
    }


def test_the_page_shows_the_example_as_it_is() -> None:
    page = (ROOT / "docs" / "extend.md").read_text()
    for path in (EXAMPLES / "operator" / "sampling").rglob("*.py"):
        assert path.read_text() in page, path


@pytest.mark.parametrize("declared", ["project", "plain"])
def test_it_is_sampled_learnt_priced_and_in_the_ledger(declared: str, request: pytest.FixtureRequest) -> None:
    found: dict[str, Any] = json.loads(
        run_module(request.getfixturevalue(declared), "tests.operator_everywhere", "soft_cap")
    )
    assert found["registered"]
    assert found["survives_its_fields"]
    assert found["timed_us"].keys() == {"forward", "backward"}
    assert min(found["timed_us"].values()) > 0
    assert found["learnt"]["source"] == "measured"
    assert found["learnt"]["us"] == pytest.approx(found["expected_us"], rel=0.02)
    assert found["analytic"] == ["analytic"]
    assert found["ledger_us"].keys() == {"soft_cap"}


def test_its_own_test_and_those_of_every_operator_pass(project: Path) -> None:
    tests = ("tests/sampling/operators/test_soft_cap.py", "tests/sampling/operators/test_operators.py")
    run_module(project, "pytest", "-q", "-p", "no:cacheprovider", "-k", "soft_cap or examples_cover", *tests)
