"""A mutant is one change that Python still reads, and a test that fails notices it."""

import ast
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.golden.answers import names_of_tests
from tests.trust import mutants as mutating
from tests.trust.mutants import (
    ROOMS,
    ROOT,
    Mutant,
    Reached,
    answers,
    covering,
    in_fork,
    in_page,
    mutants,
    reach,
    survives,
)

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
    assert {in_page(str(each)) for each in found} >= {
        "larger.py, larger: other - 1 → other + 1",
        "larger.py, the module: 2 → 3",
    }
    sound = ast.unparse(ast.parse(SOURCE))
    assert all(each.source != sound and ast.parse(each.source) for each in found)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two functions in predict, and a test of one of them."""
    monkeypatch.setattr(mutating, "ROOT", tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "predict"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "tests").mkdir()
    (tmp_path / "predict").mkdir()
    (tmp_path / "predict" / "__init__.py").touch()
    (tmp_path / "predict" / "larger.py").write_text(SOURCE + "\n\ndef untested() -> int:\n    return 3\n")
    (tmp_path / "tests" / "test_larger.py").write_text(
        "from predict.larger import larger\n\ndef test_it() -> None:\n    assert larger(3) == 3\n"
    )
    return tmp_path


def test_a_mutant_that_fails_a_test_does_not_survive(project: Path) -> None:
    file = Path("predict/larger.py")
    sound = (project / file).read_text()
    reached = reach(["tests/test_larger.py"])
    assert [{line for name, line in each.functions if name == str(file)} for each in reached.values()] == [{1}]
    alive = {str(each) for each in mutants(file) if survives(each, covering(each, reached))}
    assert any("other - 1 → other + 1" in each for each in alive)
    assert any("3 → 4" in each for each in alive)
    assert not any("max(one, other) → min(one, other)" in each for each in alive)
    assert (project / file).read_text() == sound


def test_a_fork_that_takes_too_much_of_a_processor_has_no_answer() -> None:
    def endless() -> None:
        while True:
            pass

    assert in_fork(endless, cpu_s=1) is None
    assert in_fork(lambda: {"one": 1}) == {"one": 1}


def test_what_runs_as_a_module_is_imported_may_show_in_any_test() -> None:
    reached = {
        "test_a.py::test_slow": Reached(functions=frozenset({("predict/one.py", 4)}), cpu_s=2.0),
        "test_a.py::test_other": Reached(functions=frozenset(), cpu_s=0.5),
        "test_b.py::test_quick": Reached(functions=frozenset({("predict/one.py", 4)}), cpu_s=1.0),
        "test_c.py::test_far": Reached(functions=frozenset(), cpu_s=0.1),
    }
    inside = Mutant(file=Path("predict/one.py"), line=5, before="", after="", source="", function=4)
    names = ["test_b.py::test_quick", "test_a.py::test_slow", "test_a.py::test_other"]
    assert list(covering(inside, reached)) == names
    assert set(covering(replace(inside, function=0), reached)) == set(reached)


@pytest.mark.parametrize("name", ROOMS)
def test_a_room_has_its_files_and_its_tests(name: str) -> None:
    room = ROOMS[name]
    assert [pattern for pattern in room.files if not list(ROOT.glob(pattern))] == []
    assert [test for test in room.tests if not (ROOT / test.partition("::")[0]).exists()] == []
    assert {test for test in room.tests if "kept[" in test} <= set(answers(*names_of_tests()))
