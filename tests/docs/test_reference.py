"""The committed pages of docs/reference are those that the code makes."""

from __future__ import annotations

import runpy
import sys

import pytest

from tests.docs.pages import ROOT

sys.path.append(str(ROOT / "docs"))  # as for a script that lies there
GENERATOR = runpy.run_path(str(ROOT / "docs" / "refresh_reference.py"))


@pytest.mark.parametrize("name", ["config.md", "commands.md", "truth.md", "constants.md"])
def test_a_generated_page_is_up_to_date(name: str) -> None:
    committed = (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8")
    assert GENERATOR["pages"]()[name] == committed, "run `make reference`"


def test_the_names_listed_are_there() -> None:
    listed = (ROOT / "docs" / "reference" / "names.md").read_text(encoding="utf-8")
    assert set(listed.splitlines()) <= set(GENERATOR["pages"]()["names.md"].splitlines()), "run `make reference`"
