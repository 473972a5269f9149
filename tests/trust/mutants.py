"""Changes of one operator, constant or condition of the code, which its tests must notice: `python -m tests.trust.mutants`.

Mutants are sampled from the rooms below, each tried in a copy of the project with the tests that are most likely to notice it first.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from compileall import compile_dir
from dataclasses import dataclass
from pathlib import Path
from py_compile import PycInvalidationMode

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
LONGEST_S = 400.0
"""Time of the tests of one mutant, after which it counts as noticed: it hangs."""


def answers(*groups: str) -> tuple[str, ...]:
    """The tests of kept answers, which hold what commands say of shipped configs."""
    return tuple(f"tests/golden/test_answers.py::test_answers_are_those_kept[{group}]" for group in groups)


@dataclass(frozen=True, kw_only=True, slots=True)
class Room:
    """Files that are mutated, and the tests that must notice, the likely and quick ones first; those that mirror the file come before."""

    files: Sequence[str]
    tests: Sequence[str]


ROOMS: Mapping[str, Room] = {
    "schedules": Room(
        files=("predict/schedules/**/*.py",),
        tests=(
            "tests/golden/test_figures.py",
            "tests/predict/schedules",
            "tests/predict/cli/test_schedule.py",
            "tests/conformance/test_schedules.py",
            *answers("schedules"),
        ),
    ),
    "step": Room(
        files=("predict/step/*.py",),
        tests=(
            *answers("runs-demo"),
            "tests/predict/step",
            "tests/laws/test_scaling.py",
            *answers("runs-llama3-70b-64xh100", "runs-deepseek-v3-1024xh100", "runs-data-parallel"),
        ),
    ),
    "memory": Room(
        files=("predict/memory/*.py",),
        tests=(
            "tests/predict/memory",
            "tests/predict/layers/test_mixture.py",
            *answers("fit", "runs-demo", "runs-deepseek-v3-1024xh100"),
        ),
    ),
    "ledger": Room(
        files=("predict/ledger/*.py",),
        tests=(
            "tests/predict/ledger",
            *answers("runs-demo", "runs-llama3-70b-64xh100", "runs-deepseek-v3-1024xh100", "rl-qwen3.5-35b-a3b-grpo"),
            "tests/predict/rl/test_books.py",
        ),
    ),
    "serving/scheduler": Room(
        files=(
            *(f"predict/serving/{name}.py" for name in ("engine_loop", "block_cache", "kv_cache", "simulate")),
            "predict/serving/fleet_*.py",
        ),
        tests=(
            *(f"tests/golden/test_figures.py::test_figures_have_not_moved[{name}]" for name in ("engines", "fleets")),
            *(f"tests/predict/serving/test_{name}.py" for name in ("engine_loop", "fleet", "server", "speculation")),
        ),
    ),
}
SHOWN = 80
"""Characters of a change that are shown."""
UNNOTICEABLE: Mapping[str, str] = {
    "predict/schedules/families/v_half.py: few // 2 → few // 3": "any microbatch of the steady state does",
    "predict/schedules/families/v_half.py: 0 → 1": "no backward has the first slot",
    "predict/schedules/engine/folding.py: (0, 0) → (0, 1)": "no stretch either way",
    "predict/memory/peak.py: 2 * len(KINDS) → 3 * len(KINDS)": "rows that nothing reads",
    "predict/memory/peak.py: chunk.max() + 1 → chunk.max() + 2": "a chunk that has no actions",
    "predict/step/breakdown.py: priced.exposed_us / whole_us if whole_us else 0.0 → "
    "priced.exposed_us / whole_us if whole_us else 1.0": "a share of nothing",
    "predict/ledger/waterfall.py: exposed_us / bucket.median_us if bucket.median_us else 0.0 → "
    "exposed_us / bucket.median_us if bucket.median_us else 1.0": "a share of nothing",
    "predict/step/priced_block.py: if len(self._known) > MOST_KNOWN → if not len(self._known) > MOST_KNOWN": "speed: what is kept",
    "predict/step/priced_block.py: _kept.insert(0, made) → _kept.insert(1, made)": "speed: which list is forgotten first",
}
"""Changes after which every answer is the same, by file and change, with the reason: they count as survivors and are not run."""
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
    shown = _shown(tree, node)
    before = _in_a_line(shown)
    setattr(node, name, value)
    return Mutant(
        file=file,
        line=getattr(node, "lineno", 0),
        before=before,
        after=_in_a_line(shown),
        source=ast.unparse(ast.fix_missing_locations(tree)),
    )


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


def copied_project(place: Path) -> Path:
    project = place / "project"
    project.mkdir()
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, project / name, ignore=shutil.ignore_patterns("__pycache__", "imported"))
        else:
            shutil.copy(ROOT / name, project)
    # checked by content, bytecode of a mutant never passes for that of the sound file, as by second and size it may
    for name in ("sampling", "regressors", "predict", "tests"):
        compile_dir(project / name, quiet=2, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
    return project


def likely(file: Path, tests: Sequence[str]) -> list[str]:
    """The tests of a mutant of the file in the order in which they run: kept figures, which take seconds, then files that
    mirror the module or its package."""
    mirrors = (file.parent / f"test_{file.name}", file.parent.parent / f"test_{file.parent.name}.py")
    of_rooms = [
        str(path.relative_to(ROOT))
        for test in tests
        for path in (sorted((ROOT / test).rglob("test_*.py")) if (ROOT / test).is_dir() else [ROOT / test])
    ]
    first = [test for test in of_rooms if "test_figures" in test]
    first += [str(Path("tests") / each) for each in mirrors if (ROOT / "tests" / each).exists()]
    return list(dict.fromkeys([*first, *of_rooms]))


def passes(project: Path, tests: Sequence[str]) -> bool:
    """Whether no test of the project fails, or hangs."""
    # loops run as Python: each mutant of one would be compiled for minutes
    environment = {**os.environ, "PYTHONPATH": str(project), "NUMBA_DISABLE_JIT": "1"}
    # -B: what is written here is checked by second and size again
    asked = [sys.executable, "-B", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(asked, cwd=project, env=environment, capture_output=True, timeout=LONGEST_S, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def survives(project: Path, mutant: Mutant, tests: Sequence[str]) -> bool:
    """Whether no test of the project fails, or hangs, with the mutant in it."""
    file = project / mutant.file
    sound = file.read_text()
    file.write_text(mutant.source)
    try:
        return passes(project, likely(mutant.file, tests))
    finally:
        file.write_text(sound)


def parser() -> argparse.ArgumentParser:
    return command(__doc__, cases=40, part="room", parts=ROOMS)


def main() -> None:
    options = parser().parse_args()
    until = time.monotonic() + 60 * options.minutes
    tried: dict[str, dict[str, bool]] = counts_so_far(options.resume)
    waiting = list(_in_turn(options.room or list(ROOMS), options.seed, options.cases))
    # those that survived are tried once more, after the new ones
    waiting.sort(key=lambda each: str(each[1]) in tried.get(each[0], {}))
    with tempfile.TemporaryDirectory() as place:
        project = copied_project(Path(place))
        for name, mutant in waiting:
            of_room = tried.setdefault(name, {})
            if of_room.get(str(mutant)) is False:
                continue
            if _word(str(mutant)):
                of_room[str(mutant)] = True
                continue
            if time.monotonic() > until:
                break
            if not of_room and not passes(project, ROOMS[name].tests):
                raise SystemExit(f"{name}: its tests fail, or hang, without a mutant; mend them first")
            of_room[str(mutant)] = survives(project, mutant, ROOMS[name].tests)
            print(f"{name}: {'SURVIVES' if of_room[str(mutant)] else 'noticed'}: {mutant}", flush=True)
            write_counts(options.resume, tried)
    rows = []
    for name, each in tried.items():
        left = [mutant for mutant, alive in each.items() if alive]
        share = f"{1 - len(left) / len(each):.0%}" if each else "–"
        listed = "; ".join(f"`{mutant}`: {_word(mutant) or 'not noticed'}" for mutant in left)
        rows.append([name, len(each), len(each) - len(left), share, listed or "–"])
    note = f"Seed {options.seed}."
    show("mutants", ("room", "mutants", "noticed", "share", "survivors"), rows, note, keep=options.keep)


def _word(mutant: str) -> str:
    """Why no test can notice a mutant; "" where one could."""
    file, _, change = mutant.partition(":")
    return UNNOTICEABLE.get(f"{file}: {change.partition(': ')[2]}", "")


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
