"""The documentation's pages hold together."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import ROOT, links, pages

LONGEST_README_BYTES = 9_000


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    dead = [target for target in links(page) if not (page.parent / target.split("#")[0]).exists()]
    assert dead == []


def test_the_readme_is_read_in_the_first_ten_minutes() -> None:
    assert len((ROOT / "README.md").read_bytes()) <= LONGEST_README_BYTES


def test_every_page_is_reached_from_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    reached = {(index.parent / target).resolve() for target in links(index)}
    left = {page for page in pages() if page.parent != ROOT and page != index} - reached
    assert left == set()
