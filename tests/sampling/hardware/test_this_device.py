"""The version of the code that rows carry, with and without the history of a clone."""

import subprocess
from pathlib import Path

import pytest

from sampling.files.places import INSTALLED, PACKAGE
from sampling.hardware import this_device as code_version


def git(folder: Path, *arguments: str) -> str:
    result = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return result.stdout.strip()


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A package of a few files, and caches that no repository holds."""
    for name in ("a.py", "a/b.py", "a.d/c.py", "ab/deep/e.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"# {name}")
    return tmp_path


def test_the_hash_of_sources_is_gits(sources: Path) -> None:
    git(sources, "init", "--quiet")
    git(sources, "add", ".")
    tree = git(sources, "write-tree")
    (sources / "a" / "__pycache__").mkdir()
    (sources / "a" / "__pycache__" / "b.pyc").write_text("compiled")
    (sources / ".git").rename(sources.parent / "history")
    assert code_version.tree_hash(sources) == tree


def test_a_copy_without_history_is_named_by_its_sources(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_version, "PACKAGE", sources)
    assert code_version.code_version() == f"tree:{code_version.tree_hash(sources)[:12]}"


def test_an_installation_is_not_named_by_the_clone_it_lies_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_version, "SHIPPED", INSTALLED)
    assert code_version.code_version() == f"tree:{code_version.tree_hash(PACKAGE)[:12]}"
