"""Every `--help` has examples, and they work: each is run, or, where that takes minutes or a file of the reader's, parsed."""

import argparse
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from predict.cli import main, parser
from tests.docs.pages import ROOT, is_kept, pages, quicker
from tests.docs.pages import commands as shown_commands

MINUTES = (
    "measure",
    "benchmark",
    "validate configs/",
    "validate this-machine",
    "validate samples",
    "doctor --data data",
    "record",
    "history",
    "explore",
    "sensitivity configs/rl",
)
SHOWN = {command for page in pages() for command in shown_commands(page)}
"""Commands of the documentation, which are run as its readers would."""
READERS = {"out/bench.json", "both", "out/traces", "rank0.json.gz", "train.log"}
"""Words of examples that need a file of the reader's, or train for real."""


def commands() -> Iterator[argparse.ArgumentParser]:
    yield parser()
    (subcommands,) = (each.choices for each in parser()._actions if isinstance(each, argparse._SubParsersAction))
    yield from subcommands.values()


def examples() -> list[str]:
    """The example lines of every command, without what is said of them, once each."""
    lines = [line for command in commands() for line in (command.epilog or "").splitlines()[1:]]
    return list(dict.fromkeys(line.strip().split("   ")[0].split("  ")[0] for line in lines))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory that looks like the clone, into which examples may write."""
    for name in ("configs", "data", "docs"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "out").mkdir()
    shutil.copy(ROOT / "docs" / "examples" / "stages.json", tmp_path)
    monkeypatch.chdir(tmp_path)


def test_every_command_has_examples_of_itself() -> None:
    for command in commands():
        assert command.epilog and command.epilog.startswith("examples:\n"), command.prog
        assert f"  {command.prog}" in command.epilog, command.prog


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("example", examples())
def test_an_example_works(example: str) -> None:
    program, *arguments = shlex.split(example)
    if program == "python":
        assert arguments[:2] == ["-m", "sampling"]
    elif " ".join(arguments).startswith(MINUTES) or READERS & set(arguments) or example in SHOWN or is_kept(example):
        parser().parse_args(arguments)
    else:
        assert main([*arguments, *quicker(example)]) == 0
