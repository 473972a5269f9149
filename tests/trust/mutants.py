"""Changes of one operator, constant or condition of the code, which its tests must notice: `python -m tests.trust.mutants`.

Mutants are sampled from the rooms below, each tried in a copy of the project with the tests that are most likely to notice it first.
"""

from __future__ import annotations

import argparse
import ast
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.trust.table import command, counts_so_far, show, write_counts

ROOT = Path(__file__).resolve().parents[2]
COPIED = (
    "sampling",
    "regressors",
    "predict",
    "tests",
    "configs",
    "data",
    "docs",
    "pyproject.toml",
    "setup.py",
    "README.md",
    "Makefile",
)
LONGEST_S = 240.0
"""Time of the tests of one mutant, after which it counts as noticed: it hangs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Room:
    """Files that are mutated, and the tests that must notice, the likely and quick ones first."""

    files: Sequence[str]
    tests: Sequence[str]


ROOMS: Mapping[str, Room] = {
    "schedules": Room(
        files=("predict/schedules/**/*.py",), tests=("tests/predict/schedules", "tests/conformance/test_schedules.py")
    ),
    "step": Room(
        files=("predict/step/*.py",),
        tests=(
            "tests/predict/step",
            "tests/golden/test_figures.py",
            "tests/laws/test_scaling.py",
            "tests/predict/workload",
            "tests/predict/reduced_benchmark",
        ),
    ),
    "memory": Room(files=("predict/memory/*.py",), tests=("tests/predict/memory", "tests/predict/cli/test_memory.py")),
    "ledger": Room(
        files=("predict/ledger/*.py",),
        tests=("tests/predict/ledger", "tests/predict/rl/test_books.py", "tests/golden/test_figures.py"),
    ),
    "serving/scheduler": Room(
        files=("predict/serving/engine_loop.py", "predict/serving/kv_cache.py", "predict/serving/simulate.py"),
        tests=(
            "tests/predict/serving/test_engine_loop.py",
            "tests/predict/serving",
            "tests/predict/plan_search/test_serving.py",
        ),
    ),
}
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

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.before} → {self.after}"


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
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float, bool):
            yield node, "value", not node.value if isinstance(node.value, bool) else node.value + 1
        elif isinstance(node, ast.Name) and node.id in CALLED:
            yield node, "id", CALLED[node.id]
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            yield node, "op", ast.UAdd()


def _left_alone(node: ast.AST) -> Iterator[ast.AST]:
    """Parts of a node whose change shows in no answer: annotations, decorators, error texts, the conditions of type checkers, and
    `strict` of a zip, which asserts."""
    if isinstance(node, ast.keyword) and node.arg == "strict":
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
    before = ast.unparse(node)
    setattr(node, name, value)
    return Mutant(
        file=file,
        line=getattr(node, "lineno", 0),
        before=before[:80],
        after=ast.unparse(node)[:80],
        source=ast.unparse(ast.fix_missing_locations(tree)),
    )


def drawn(room: Room, draw: random.Random, count: int) -> Iterator[Mutant]:
    """Mutants of a room at random, each place as likely as any other; more of them go on from fewer."""
    files = sorted({path.relative_to(ROOT) for pattern in room.files for path in ROOT.glob(pattern)})
    chosen = [(file, number) for file in files for number in range(places(file))]
    draw.shuffle(chosen)
    return (mutant_at(file, number) for file, number in chosen[:count])


def copied_project(place: Path) -> Path:
    project = place / "project"
    project.mkdir()
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, project / name, ignore=shutil.ignore_patterns("__pycache__", "imported"))
        else:
            shutil.copy(ROOT / name, project)
    return project


def survives(project: Path, mutant: Mutant, tests: Sequence[str]) -> bool:
    """Whether no test of the project fails, or hangs, with the mutant in it."""
    file = project / mutant.file
    sound = file.read_text()
    file.write_text(mutant.source)
    try:
        # -B: bytecode is kept by second and size, so that of the sound file would pass for a mutant's of the same length
        asked = [sys.executable, "-B", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
        return subprocess.run(asked, cwd=project, capture_output=True, timeout=LONGEST_S, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        file.write_text(sound)


def parser() -> argparse.ArgumentParser:
    return command(__doc__, cases=40, part="room", parts=ROOMS)


def main() -> None:
    options = parser().parse_args()
    until = time.monotonic() + 60 * options.minutes
    tried = counts_so_far(options.resume)
    with tempfile.TemporaryDirectory() as place:
        project = copied_project(Path(place))
        for name, mutant in _in_turn(options.room or list(ROOMS), options.seed, options.cases):
            of_room = tried.setdefault(name, {})
            if of_room.get(str(mutant)) is False:
                continue
            if time.monotonic() > until:
                break
            of_room[str(mutant)] = survives(project, mutant, ROOMS[name].tests)
            print(f"{name}: {'SURVIVES' if of_room[str(mutant)] else 'noticed'}: {mutant}", flush=True)
            write_counts(options.resume, tried)
    rows = []
    for name, each in tried.items():
        left = [mutant for mutant, alive in each.items() if alive]
        share = f"{1 - len(left) / len(each):.0%}" if each else "–"
        rows.append([name, len(each), len(each) - len(left), share, "; ".join(f"`{mutant}`" for mutant in left) or "–"])
    note = f"Seed {options.seed}."
    show("mutants", ("room", "mutants", "noticed", "share", "survivors"), rows, note, keep=options.keep)


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
