"""A mutant is one change that Python still reads, and a test that fails notices it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.golden.answers import names
from tests.trust import mutants as mutating
from tests.trust.mutants import ROOMS, ROOT, answers, mutants, survives

SOURCE = '''\
def larger(one: int, other: int = 2) -> int:
    """The larger of two."""
    assert other == 2, f"{other + 1}"
    return max(one, other) if one > 0 else other - 1
'''


def test_each_change_is_one_and_checks_and_texts_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutating, "ROOT", tmp_path)
    (tmp_path / "larger.py").write_text(SOURCE)
    found = list(mutants(Path("larger.py")))
    assert sorted(each.before for each in found) == sorted(
        [
            "max(one, other) if one > 0 else other - 1",
            "one > 0",
            "one > 0",
            "other - 1",
            "other - 1",
            "max(one, other)",
            "2",
        ]
    )
    sound = ast.unparse(ast.parse(SOURCE))
    assert all(each.source != sound and ast.parse(each.source) for each in found)


def test_a_mutant_that_fails_a_test_does_not_survive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutating, "ROOT", tmp_path)
    (tmp_path / "larger.py").write_text(SOURCE)
    (tmp_path / "test_larger.py").write_text(
        "from larger import larger\n\ndef test_it() -> None:\n    assert larger(3) == 3\n"
    )
    alive = {str(each) for each in mutants(Path("larger.py")) if survives(tmp_path, each, ["test_larger.py"])}
    assert any("other - 1 → other + 1" in each for each in alive)
    assert not any("max(one, other) → min(one, other)" in each for each in alive)
    assert (tmp_path / "larger.py").read_text() == SOURCE


@pytest.mark.parametrize("name", ROOMS)
def test_a_room_has_its_files_and_its_tests(name: str) -> None:
    room = ROOMS[name]
    assert [pattern for pattern in room.files if not list(ROOT.glob(pattern))] == []
    assert [test for test in room.tests if not (ROOT / test.partition("::")[0]).exists()] == []
    assert {test for test in room.tests if "kept[" in test} <= set(answers(*names()))
