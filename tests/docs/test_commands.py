"""Every command that the documentation shows is run, or, where running it takes minutes or a GPU, parsed.

The commands of a page share a folder, in the page's order, since one writes what another reads.
"""

import argparse
import re
import shlex
import subprocess
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from predict.cli import main
from predict.cli import parser as predict_parser
from tests.docs.pages import ROOT, commands, inline_commands, is_kept, pages, quicker

MINUTES = (
    "predict measure",
    "predict validate configs",
    "predict validate this-",
    "predict benchmark",
    "predict explore",
    "predict record",
    "predict history",
    "predict sensitivity configs/serving",
    "predict search docs/examples/serving/llama3-70b-pools.yml",
)
"""Commands that train or time for real, serve until they are ended, or keep runs in the user's data; tests of their own run them,
as `test_first_hour` runs those of the README."""
RUNS = "data/published/runs.csv"
PLACEHOLDERS = {
    "CLONE",
    "DIR",
    "HOST:29500",
    "all_reduce.log",
    "trace.json.gz",
    "FILE",
    "CONFIG",
    "out/bench.json",
    "out/traces",
    "out/memory.json",
    "train.log",
    "qlora.yml",
}
"""Words for files that the reader has and this clone has not."""
FEW_RUNS = ("Narayanan", "Korthikanti")
"""Sources whose runs the readers' table has: a command that predicts each run many times is quicker with a fifth of them."""
SHOWN = [(page, command) for page in pages() for command in commands(page)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place that looks like the clone, into which commands may write."""
    place = tmp_path_factory.mktemp("reader")
    (place / "data").mkdir()
    (place / "out").mkdir()
    for path in (ROOT / "configs", ROOT / "docs", *(ROOT / "data").iterdir()):
        if path != (ROOT / RUNS).parent:
            (place / path.relative_to(ROOT)).symlink_to(path)
    heading, *runs = (ROOT / RUNS).read_text().splitlines(keepends=True)
    (place / RUNS).parent.mkdir()
    (place / RUNS).write_text("".join([heading, *(run for run in runs if any(source in run for source in FEW_RUNS))]))
    return place


@pytest.mark.parametrize(
    ("page", "command"), SHOWN, ids=[f"{page.relative_to(ROOT)}: {command}" for page, command in SHOWN]
)
def test_a_shown_command_works(page: Path, command: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, *words = shlex.split(command)
    arguments = [name for word in words for name in _expanded(word)]
    if program == "predict":
        run_elsewhere = page == ROOT / "README.md" or is_kept(command) or command.startswith(MINUTES)
        if run_elsewhere or PLACEHOLDERS & set(arguments):
            _parsed(arguments, predict_parser)
            assert all((ROOT / word).exists() for word in arguments if word.startswith(("configs/", "docs/")))
        else:
            monkeypatch.chdir(folder)
            assert main([*arguments, *quicker(command)]) == 0
    elif program == "python" and arguments[0] == "-m":
        _parsed(arguments[2:], _parser_of_module(arguments[1], arguments[2:]))
    elif program == "python":
        assert (ROOT / arguments[0]).is_file()
    elif program == "make":
        subprocess.run(["make", "--dry-run", *arguments], cwd=ROOT, capture_output=True, check=True)
    else:
        named = [word for word in arguments if word.startswith("configs/")]
        assert named
        assert all((ROOT / word).is_file() for word in named)


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_named_in_the_text_exist(page: Path) -> None:
    """Their arguments are often left out, so only the command, module or target is looked up."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for command in inline_commands(page):
        program, *arguments = shlex.split(command)
        if program == "predict":
            assert arguments[0].startswith("-") or arguments[0] in _predict_commands(), command
        elif program == "make":
            assert arguments[0] in targets, command
        elif arguments[0] == "-m":
            assert find_spec(arguments[1]), command
        else:
            assert (ROOT / arguments[0]).is_file(), command


def _expanded(word: str) -> list[str]:
    """The files that a pattern names, as a shell gives them to a command; another word as it is."""
    return sorted(str(path.relative_to(ROOT)) for path in ROOT.glob(word)) or [word] if "*" in word else [word]


@cache
def _predict_commands() -> set[str]:
    (subcommands,) = (
        action.choices for action in predict_parser()._actions if isinstance(action, argparse._SubParsersAction)
    )
    return set(subcommands)


def _parsed(arguments: Sequence[str], parser: Callable[[], argparse.ArgumentParser]) -> None:
    """Raises SystemExit, which fails the test, for an option that is not there."""
    parser().parse_args(arguments)


def _parser_of_module(module: str, arguments: Sequence[str]) -> Callable[[], argparse.ArgumentParser]:
    from importlib import import_module

    if module == "sampling" and arguments[0] == "import":
        importing = import_module("sampling.importers.command").parser()
        return lambda: _after_word(importing, "import")
    if module == "sampling" and arguments[0] == "import-archive":
        merging = import_module("sampling.session.import_archive").parser()
        return lambda: _after_word(merging, "import-archive")
    package = import_module(module)
    named = import_module(f"{module}.__main__") if hasattr(package, "__path__") else package
    parser: Callable[[], argparse.ArgumentParser] = named.parser
    return parser


def _after_word(importing: argparse.ArgumentParser, word: str) -> argparse.ArgumentParser:
    """The parser of an import behind a parser of its word."""
    outer = argparse.ArgumentParser()
    outer.add_subparsers().add_parser(word, parents=[importing], add_help=False, conflict_handler="resolve")
    return outer
