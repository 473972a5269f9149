"""The house as `docs/` describes it: imports run one way, no circle crosses a folder, and one change touches few files."""

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import grimp
import pytest

import predict

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("sampling", "regressors", "predict")
LONGEST_LINE = 140
NO_BEGINNINGS = ("What", "How", "By", "Where", "Of", "That")
"""First words of a docstring that leave its reader to guess the thing itself."""
LONGEST_CIRCLE = 2


@cache
def imports() -> Mapping[str, frozenset[str]]:
    """Each module's imports of our own modules, those inside functions counted, those for type checkers not."""
    graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True, cache_dir=None)
    found = {
        module: frozenset(graph.find_modules_directly_imported_by(module)) & graph.modules for module in graph.modules
    }
    return {module: others | public_names(module) for module, others in found.items()}


def public_names(module: str) -> frozenset[str]:
    """The modules of the names that a module imports from `predict` itself, which looks them up when they are asked for."""
    path = ROOT.joinpath(*module.split("."))
    source = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text()
    homes = {name: home for home, names in predict.HOMES.items() for name in names}
    return frozenset(
        homes[each.name]
        for node in ast.walk(ast.parse(source) if "from predict import" in source else ast.Module([], []))
        if isinstance(node, ast.ImportFrom) and node.module == "predict"
        for each in node.names
        if each.name in homes
    )


def circles() -> Iterator[list[str]]:
    """The strongly connected components of more than one module (Tarjan, 1972)."""
    graph, index, low, stack, found = imports(), {}, {}, [], []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in graph[module]:
            if other not in index:
                visit(other)
            if other in stack:
                low[module] = min(low[module], low[other])
        if low[module] == index[module]:
            circle = stack[stack.index(module) :]
            del stack[-len(circle) :]
            if len(circle) > 1:
                found.append(sorted(circle))

    for module in sorted(graph):
        if module not in index:
            visit(module)
    yield from found


def folder(module: str) -> str:
    path = ROOT.joinpath(*module.split("."))
    return module if path.is_dir() else module.rpartition(".")[0]


def test_no_import_circle_is_longer_than_two_files() -> None:
    assert [circle for circle in circles() if len(circle) > LONGEST_CIRCLE] == []


def test_no_import_circle_crosses_a_folder() -> None:
    assert [circle for circle in circles() if len({folder(module) for module in circle}) > 1] == []


def test_the_circles_are_searched_in_all_files() -> None:
    assert len(imports()) > 250
    assert "predict.schedules.engine" in imports()


def test_only_measuring_imports_torch_to_predict() -> None:
    users = {
        path.relative_to(ROOT).parts[1]
        for path in (ROOT / "predict").rglob("*.py")
        if any(line.strip().startswith(("import torch", "from torch")) for line in path.read_text().splitlines())
    }
    assert users == {"bounds", "measurement"}


@cache
def parsed(package: str) -> list[tuple[Path, list[str], ast.Module]]:
    """The files of a package, by their paths here, with their lines and syntax."""
    texts = {path.relative_to(ROOT): path.read_text() for path in sorted((ROOT / package).rglob("*.py"))}
    return [(path, text.splitlines(), ast.parse(text)) for path, text in texts.items()]


@pytest.mark.parametrize("package", PACKAGES)
def test_no_line_of_a_docstring_is_longer_than_an_editor_shows(package: str) -> None:
    """Of fields and constants too; ruff's own limit is off, since it would hold messages to it."""
    long = []
    for path, lines, tree in parsed(package):
        long += [
            f"{path}:{number}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
            for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
            if len(lines[number - 1]) > LONGEST_LINE
        ]
    assert long == []


@pytest.mark.parametrize("package", PACKAGES)
def test_a_docstring_begins_with_what_a_thing_is_or_does(package: str) -> None:
    """Of modules, classes and functions; those of fields may say how a value is chosen."""
    begun = [
        f"{path}: {text.splitlines()[0]}"
        for path, _, tree in parsed(package)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node))
        if text.split()[0] in NO_BEGINNINGS
    ]
    assert begun == []


def test_a_test_file_is_named_after_its_module_or_package() -> None:
    """Of those that mirror the packages; laws across modules are in `tests/laws`."""
    tests = [path for package in PACKAGES for path in (ROOT / "tests" / package).rglob("test_*.py")]
    tested = {path: path.relative_to(ROOT / "tests").with_name(path.name.removeprefix("test_")) for path in tests}
    assert len(tested) > 150
    assert [
        str(path.relative_to(ROOT))
        for path, module in tested.items()
        if not (ROOT / module).exists()
        and not (ROOT / module).with_suffix("").is_dir()
        and not (ROOT / module).with_stem(f"__{module.stem}__").exists()
    ] == []


def files_with(pattern: str) -> set[str]:
    """The files of predict in which a pattern occurs."""
    return {
        str(path.relative_to(ROOT / "predict"))
        for path in (ROOT / "predict").rglob("*.py")
        if re.search(pattern, path.read_text("utf-8"))
    }


def test_the_price_of_sends_that_block_is_in_three_files() -> None:
    """The setting, the ranks that take it, and the costs that it changes; what times an order does not know of it."""
    assert files_with(r"\boverlap_p2p: bool|execution\.overlap_p2p\b(?!\")|times\.blocking") == {
        "run/execution.py",
        "step/priced_rank.py",
        "schedules/engine/costs.py",
    }


def test_the_rules_by_which_widths_add_are_in_one_file() -> None:
    assert files_with(r"(?m)^def (independent|shared)_causes|^width_of_\w+ = ") <= {"interval.py"}
    assert files_with(r"\bwidth_beyond_calls\(") == {
        "step/composition_error.py",
        "step/prediction.py",
        "rl/plain_torch.py",
    }
