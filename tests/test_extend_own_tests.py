"""With every example of `docs/extend.md` dropped in, the project's own tests of lists, figures and pages pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.project_copy import run_modules

LISTS = (
    "tests/test_architecture.py",
    "tests/sampling/importers/test_storing.py",
    "tests/sampling/test_hardware.py",
    "tests/conformance",
    "tests/predict/memory/test_activations.py",
)
FIGURES = ("tests/golden",)
PAGES = ("tests/docs/test_pages.py",)


@pytest.mark.parametrize(
    ("paths", "selected"),
    [
        (
            LISTS,
            "examples_cover or importer_is_found or catalogue_has or every_family or every_part or ends_divide or every_format "
            "or eager-1f1b or transformers-trainer or hipblaslt-bench",
        ),
        (FIGURES, "figures"),
        (PAGES, "up_to_date or names_listed"),
    ],
    ids=["lists", "figures", "pages"],
)
def test_the_project_s_own_tests_pass(project_copy: Path, paths: tuple[str, ...], selected: str) -> None:
    run_modules(project_copy, ("pytest", "-q", "-p", "no:cacheprovider", "-k", selected, *paths))
