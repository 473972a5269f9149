"""Changes of one operator, constant or condition of the code, which its tests must notice: `python -m tests.trust.mutants`.

Tests of a room are run once to see which functions they call. A mutant of a function is tried with the tests that call it, those that the
room names first before others and the quickest of them first, in a fork that imports the changed module in place of the sound one: no file is
written, no interpreter started.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import math
import os
import random
import resource
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from cProfile import Profile
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from itertools import groupby, zip_longest
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
import yaml

from tests.trust.table import command, counts_so_far, show, write_counts

ROOT = Path(__file__).resolve().parents[2]
OURS = ("sampling", "regressors", "predict", "tests")
"""Packages that a fork imports anew, the changed module among them."""
LONGEST_S = 60.0
"""Processor time of the tests of a file, after which they are left out."""
START_S, TIMES_AS_LONG = 20.0, 3.0
"""Processor time of a mutant's tests after which it counts as noticed, since it hangs: that of importing and collecting, and a multiple of
what the tests take without it, traced."""
MOST_BYTES = 8 * 2**30
"""Memory of a fork."""
NO_ANSWER = (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED)


def answers(*groups: str) -> tuple[str, ...]:
    """The tests of kept answers, which hold what commands say of shipped configs."""
    return tuple(f"tests/golden/test_answers.py::test_answers_are_those_kept[{group}]" for group in groups)


@dataclass(frozen=True, kw_only=True, slots=True)
class Room:
    """Files that are mutated, and the tests that must notice."""

    files: Sequence[str]
    tests: Sequence[str]


KNOWN = yaml.safe_load(Path(__file__).with_suffix(".yml").read_text(encoding="utf-8"))
ROOMS = {name: Room(**room) for name, room in KNOWN["rooms"].items()}
SHOWN = 80
"""Characters of a change that are shown."""
UNNOTICEABLE: Mapping[str, str] = KNOWN["unnoticeable"]
"""Changes after which every answer is the same, with the reason."""
COMPARED: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
OPERATED: Mapping[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Div, ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult,
}  # fmt: skip
CALLED = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Mutant:
    """A file with one change: the line, and its source before and after."""

    file: Path
    line: int
    before: str
    after: str
    source: str
    function: int = 0
    """First line of the function that it lies in, decorators included; 0 where it runs as the module is imported."""
    within: str = "the module"
    """The name of that function."""

    def __str__(self) -> str:
        return f"{self.file}, {self.within}, line {self.line}: {self.before} → {self.after}"


def changes(tree: ast.Module) -> Iterator[tuple[ast.AST, str, object]]:
    """Each node that can be changed, the attribute of it and its other value. Texts, annotations and messages are left as they are."""
    skipped = {id(inner) for node in ast.walk(tree) for each in _left_alone(node) for inner in ast.walk(each)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARED:
            yield node, "ops", [COMPARED[type(node.ops[0])](), *node.ops[1:]]
        elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in OPERATED and not _text(node):
            yield node, "op", OPERATED[type(node.op)]()
        elif isinstance(node, ast.BoolOp):
            yield node, "op", ast.And() if isinstance(node.op, ast.Or) else ast.Or()
        elif isinstance(node, ast.If | ast.IfExp):
            yield node, "test", ast.UnaryOp(op=ast.Not(), operand=node.test)
        elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            yield node, "value", _other(node.value)
        elif isinstance(node, ast.Name) and node.id in CALLED:
            yield node, "id", CALLED[node.id]
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            yield node, "op", ast.UAdd()


def _other(value: float) -> float:
    """Another value of a constant: one more than a whole number, twice any other, so that no rounding hides it."""
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else 2 * value or 1.0


def _left_alone(node: ast.AST) -> Iterator[ast.AST]:
    """Parts of a node whose change shows in no answer: annotations, decorators, error texts, the conditions of type checkers,
    `strict` of a zip, which asserts, and `copy` of an array that need not be copied."""
    if isinstance(node, ast.keyword) and node.arg in ("strict", "copy"):
        yield node
    if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom):
        yield node
    if isinstance(node, ast.AnnAssign | ast.arg) and node.annotation:
        yield node.annotation
    if isinstance(node, ast.FunctionDef):
        yield from [*node.decorator_list, *([node.returns] if node.returns else [])]
    if isinstance(node, ast.ClassDef):
        yield from node.decorator_list
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        yield node


def _text(node: ast.AST) -> bool:
    return any(
        isinstance(each, ast.JoinedStr) or (isinstance(each, ast.Constant) and isinstance(each.value, str))
        for each in ast.walk(node)
    )


def mutants(file: Path) -> Iterator[Mutant]:
    """Every mutant of a file."""
    for number in range(places(file)):
        yield mutant_at(file, number)


def places(file: Path) -> int:
    """The number of places of a file that can be changed."""
    return sum(1 for _ in changes(ast.parse((ROOT / file).read_text())))


def mutant_at(file: Path, number: int) -> Mutant:
    tree = ast.parse((ROOT / file).read_text())
    node, name, value = list(changes(tree))[number]
    shown, function = _shown(tree, node), _function(tree, node)
    place = {"function": _first_line(function), "within": function.name} if function else {}
    before = _in_a_line(shown)
    setattr(node, name, value)
    return Mutant(
        file=file,
        line=getattr(node, "lineno", 0),
        before=before,
        after=_in_a_line(shown),
        source=ast.unparse(ast.fix_missing_locations(tree)),
        **place,
    )


def _function(tree: ast.Module, node: ast.AST) -> ast.FunctionDef | None:
    """The innermost function whose body holds the node."""
    holding = [
        each
        for each in ast.walk(tree)
        if isinstance(each, ast.FunctionDef) and any(inner is node for part in each.body for inner in ast.walk(part))
    ]
    return holding[-1] if holding else None


def _first_line(function: ast.FunctionDef) -> int:
    return min((function.lineno, *(each.lineno for each in function.decorator_list)))


def _shown(tree: ast.Module, node: ast.AST) -> ast.AST:
    """The node by which a change is shown: a constant or a name alone says little, so that the expression around it does."""
    around = next((each for each in ast.walk(tree) if node in ast.iter_child_nodes(each)), node)
    alone = isinstance(node, ast.Constant | ast.Name)
    return around if alone and isinstance(around, ast.expr) and len(ast.unparse(around)) <= SHOWN else node


def _in_a_line(node: ast.AST) -> str:
    return f"if {ast.unparse(node.test)}"[:SHOWN] if isinstance(node, ast.If) else ast.unparse(node)[:SHOWN]


def drawn(room: Room, draw: random.Random, count: int) -> Iterator[Mutant]:
    """Mutants of a room at random, each place as likely as any other; more of them go on from fewer."""
    files = sorted({path.relative_to(ROOT) for pattern in room.files for path in ROOT.glob(pattern)})
    chosen = [(file, number) for file in files for number in range(places(file))]
    draw.shuffle(chosen)
    return (mutant_at(file, number) for file, number in chosen[:count])


# The sound code and each mutant run in forks of a process that has imported what the project rests on, but nothing of the project.


@dataclass(frozen=True, kw_only=True, slots=True)
class Reached:
    """What a test of the sound code reaches: functions as their file and first line, and the processor time that they take."""

    functions: frozenset[tuple[str, int]]
    cpu_s: float


def in_fork(work: Callable[[], object], *, cpu_s: float = LONGEST_S) -> Any:
    """What `work` returns, as JSON keeps it, in a fork that prints nothing; None where that ends otherwise, or takes more of a processor."""
    source, target = os.pipe()
    child = os.fork()
    if not child:
        try:
            _limit(cpu_s)
            nowhere = os.open(os.devnull, os.O_RDWR)
            for stream in range(3):
                os.dup2(nowhere, stream)
            with os.fdopen(target, "w") as out:
                out.write(json.dumps(work()))
        finally:
            os._exit(0)
    os.close(target)
    with os.fdopen(source) as given:
        text = given.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else None


def _limit(cpu_s: float) -> None:
    """Limits the processor time of this process, which no other work on the machine uses up, and its memory."""
    if cpu_s < math.inf:
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(cpu_s),) * 2)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))


def pytest_code(tests: Collection[str], plugin: object) -> int:
    """The exit code of pytest on the files of the tests, of which the plugin picks."""
    files = dict.fromkeys(str(ROOT / test.partition("::")[0]) for test in tests)
    return int(pytest.main(["-q", "-x", "-p", "no:cacheprovider", f"--rootdir={ROOT}", *files], plugins=[plugin]))


def reach(tests: Sequence[str]) -> dict[str, Reached]:
    """What each test reaches; a test that fails is named and left out. What they import of others is imported here."""
    found = in_fork(lambda: _mapped(tests), cpu_s=math.inf)
    if found is None:
        raise SystemExit(f"pytest ended before its tests: {' '.join(tests)}")
    for name in found["modules"]:
        with suppress(Exception):
            importlib.import_module(name)
    if failed := [test for test, each in found["tests"].items() if each is None or not each["passed"]]:
        print(*(f"left out, as it fails or hangs without a mutant: {test}" for test in failed), sep="\n", flush=True)
    return {
        test: Reached(functions=frozenset((file, line) for file, line in each["functions"]), cpu_s=each["cpu_s"])
        for test, each in found["tests"].items()
        if test not in failed
    }


def _mapped(tests: Sequence[str]) -> dict[str, Any]:
    mapping = _Mapping(tests)
    pytest_code(tests, mapping)
    others = [name for name in sys.modules if name.partition(".")[0] not in OURS]
    return {"tests": mapping.found, "modules": others}


class _Mapping:
    """Runs the tests of each file in a fork of its own, so that they find nothing that those of others computed."""

    def __init__(self, tests: Sequence[str]) -> None:
        self.tests = tuple(tests)
        self.found: dict[str, Any] = {}

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        chosen = [item for item in session.items if item.nodeid.startswith(self.tests)]
        for _, items in groupby(chosen, key=lambda item: item.path):
            of_file = list(items)
            found = in_fork(partial(_profiled, of_file))
            self.found.update(found or {item.nodeid: None for item in of_file})
        return True


def _profiled(items: Sequence[pytest.Item]) -> dict[str, Any]:
    """Tests, run while the functions that they call are noted."""
    reports: list[pytest.TestReport] = []
    items[0].config.pluginmanager.register(_Reports(reports))
    found = {}
    for item, following in zip_longest(items, items[1:]):
        profile = Profile(builtins=False)
        begun = time.process_time()
        with profile:
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
        cpu_s = time.process_time() - begun
        called = [each.code for each in profile.getstats() if isinstance(each.code, CodeType)]
        places = {(code.co_filename.removeprefix(f"{ROOT}/"), code.co_firstlineno) for code in called}
        own = sorted(place for place in places if place[0].startswith(OURS))
        found[item.nodeid] = {"functions": own, "cpu_s": cpu_s, "passed": not any(each.failed for each in reports)}
        reports.clear()
    return found


@dataclass(frozen=True, eq=False, slots=True)
class _Reports:
    reports: list[pytest.TestReport]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.reports.append(report)


@cache
def _reached(tests: str) -> Mapping[str, Reached]:
    """What tests of a room reach; those after them are run once a mutant survives these."""
    found = reach([tests])
    print(
        f"{tests}: {len(found)} tests of {sum(each.cpu_s for each in found.values()):.0f} s of a processor", flush=True
    )
    return found


def covering(mutant: Mutant, reached: Mapping[str, Reached]) -> dict[str, float]:
    """The tests that may notice a mutant, and their time: those that call its function, the quickest first, then others of their
    files, which may have found what those had computed. What runs as the file is imported may show in any test."""
    place = (str(mutant.file), mutant.function)
    calling = {test for test, each in reached.items() if place in each.functions}
    files = {test.partition("::")[0] for test in calling}
    beside = [test for test in reached if not mutant.function or test.partition("::")[0] in files]
    return {
        test: reached[test].cpu_s
        for test in sorted(beside, key=lambda test: (test not in calling, reached[test].cpu_s))
    }


def survives(mutant: Mutant, tests: Mapping[str, float]) -> bool:
    """Whether no test, given with its time, fails with the mutant in its place, or hangs."""
    if not tests:
        return True
    names = list(tests)
    cpu_s = START_S + TIMES_AS_LONG * sum(tests.values())
    code, failed = in_fork(lambda: _tried_with(mutant, names), cpu_s=cpu_s) or (None, [])
    if code in NO_ANSWER:
        raise SystemExit(f"pytest ends with {code} on the tests of {mutant}: {' '.join(tests)}")
    if code == pytest.ExitCode.OK:
        return True
    run = names.index(failed[0]) + 1 if failed else len(names)
    _require_sound(tuple(names[:run]), cpu_s)
    return False


@cache
def _require_sound(tests: tuple[str, ...], cpu_s: float) -> None:
    """Stop unless the code without a mutant passes these tests in this order, alone and within this time."""
    code = in_fork(lambda: pytest_code(tests, _Chosen(tests)), cpu_s=cpu_s)
    if code != pytest.ExitCode.OK:
        raise SystemExit(f"pytest ends with {code} without a mutant on: {' '.join(tests)}")


def _tried_with(mutant: Mutant, tests: Sequence[str]) -> tuple[int, list[str]]:
    """The exit code of pytest with a mutant, and the test that failed."""
    sys.dont_write_bytecode = True
    sys.meta_path.insert(0, _Mutated(mutant))
    chosen = _Chosen(tests)
    return pytest_code(tests, chosen), chosen.failed


@dataclass(frozen=True, eq=False, slots=True)
class _Chosen:
    """Runs these tests in this order, and notes those that fail."""

    tests: Sequence[str]
    failed: list[str] = field(default_factory=list)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        by_name = {item.nodeid: item for item in items}
        items[:] = [by_name[test] for test in self.tests if test in by_name]


@dataclass(frozen=True, slots=True)
class _Mutated(MetaPathFinder):
    """Imports the module of a mutant from its changed source; nothing is written."""

    mutant: Mutant

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != ".".join(self.mutant.file.with_suffix("").parts):
            return None
        place = str(ROOT / self.mutant.file)
        return spec_from_file_location(name, place, loader=_ChangedSource(name, place, self.mutant.source))


class _ChangedSource(SourceFileLoader):
    def __init__(self, name: str, path: str, source: str) -> None:
        super().__init__(name, path)
        self.source = source

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.source, self.path, "exec", dont_inherit=True)


def parser() -> argparse.ArgumentParser:
    return command(__doc__, cases=40, part="room", parts=ROOMS)


def main() -> None:
    options = parser().parse_args()
    # loops run as Python: each mutant of one would be compiled for minutes
    os.environ["NUMBA_DISABLE_JIT"] = "1"
    until = time.monotonic() + 60 * options.minutes
    tried: dict[str, dict[str, bool]] = counts_so_far(options.resume)
    waiting = list(_in_turn(options.room or list(ROOMS), options.seed, options.cases))
    # those that survived are tried once more, after the new ones
    waiting.sort(key=lambda each: str(each[1]) in tried.get(each[0], {}))
    for name, mutant in waiting:
        of_room = tried.setdefault(name, {})
        if of_room.get(str(mutant)) is False:
            continue
        if time.monotonic() > until:
            break
        of_room[str(mutant)] = bool(_word(str(mutant))) or all(
            survives(mutant, covering(mutant, _reached(tests))) for tests in ROOMS[name].tests
        )
        print(f"{name}: {'SURVIVES' if of_room[str(mutant)] else 'noticed'}: {mutant}", flush=True)
        write_counts(options.resume, tried)
    rows = []
    for name, each in tried.items():
        left = [mutant for mutant, alive in each.items() if alive]
        share = f"{100 - 100 * len(left) / len(each):.0f} %" if each else "–"
        listed = "; ".join(f"`{in_page(mutant)}`: {_word(mutant) or 'not noticed'}" for mutant in left)
        rows.append([name, len(each), len(each) - len(left), share, listed or "–"])
    note = f"Seed {options.seed}."
    show("mutants", ("room", "mutants", "noticed", "share", "survivors"), rows, note, keep=options.keep)


def in_page(mutant: str) -> str:
    """A mutant as a page has it: by its function, without the line, which the next change of the file moves."""
    place, _, change = mutant.partition(": ")
    return f"{place.rpartition(', line ')[0]}: {change}"


def _word(mutant: str) -> str:
    """Why no test can notice a mutant; "" where one could."""
    place, _, change = mutant.partition(": ")
    return UNNOTICEABLE.get(f"{place.partition(', ')[0]}: {change}", "")


def _in_turn(rooms: Sequence[str], seed: int, count: int) -> Iterator[tuple[str, Mutant]]:
    """Mutants of the rooms, one of each in turn."""
    waiting = {name: drawn(ROOMS[name], random.Random(f"{name} {seed}"), count) for name in rooms}
    while waiting:
        for name in list(waiting):
            mutant = next(waiting[name], None)
            if mutant is None:
                del waiting[name]
            else:
                yield name, mutant


if __name__ == "__main__":
    main()
