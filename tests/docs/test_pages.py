"""The documentation's pages hold together."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, links, pages

LONGEST_README_BYTES = 9_000
FOLDERS = "sampling|regressors|predict|configs|data|tests|docs|benchmarks|shared|facts|oracles|truth"
CITED = re.compile(rf"(?<![\w/.-])((?:{FOLDERS})/[\w./-]*\w)")
MADE_BY_THE_USER = ("data/imported", "data/refitted", "data/samples", "data/regressors", "data/published")


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


def test_only_files_of_the_repository_are_cited() -> None:
    assert list(_dead_citations()) == []


def _dead_citations() -> Iterator[str]:
    examples = [folder for folder in (ROOT / "docs" / "examples").iterdir() if folder.is_dir()]
    for file in _sources():
        for line, text in enumerate(file.read_text().splitlines(), 1):
            for cited in CITED.findall(text):
                if Path(cited).stem.isupper():  # a word for any name
                    continue
                homes = (ROOT, file.parent, *examples)
                if not any((home / cited).exists() for home in homes) and not cited.startswith(MADE_BY_THE_USER):
                    yield f"{file.relative_to(ROOT)}:{line}: {cited}"


def _sources() -> Iterator[Path]:
    """Code, configs and pages; not the tests, nor what tells of the past."""
    listed = ["git", "ls-files", "*.py", "*.yml", "*.md"]
    for name in subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines():
        if not name.startswith(("tests/", "docs/log.md", "docs/examples/", "CHANGELOG.md")):
            yield ROOT / name
