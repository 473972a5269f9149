"""The documentation's pages, and the commands that they show."""

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.golden.answers import groups, names_of_tests
from tests.golden.commands import OPTION_FAULTS

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("predict", "python", "make", "torchrun", "sbatch")
KEPT = {f"predict {line}" for name, lines in groups().items() if name in names_of_tests() for line in lines}
"""Commands whose whole answers are compared with each run of the tests."""
WRITES = ("--order", "--output", "--save-config")
"""Options whose files other commands of a page read."""
QUICKER = {
    "predict trace": ("--set", "batch.global=32"),
    "predict search configs/rl": ("--set", "rl.prompts=16", "--set", "rl.mini_batch=4"),
    "predict sweep configs/rl": ("--set", "rl.prompts=16", "--set", "rl.mini_batch=4"),
    "predict search configs/searches": ("--set", "plan.pp=4", "--set", "plan.cp=1"),
    "predict serving configs": ("--set", "load.duration_s=10"),
}
"""What commands that start so are given besides, so that they take less time."""
INLINE_CODE = re.compile(r"`([^`\n]+)`")


def pages() -> list[Path]:
    """README and everything below docs, without the log of experiments and the changes since the last release: they are about what was."""
    of_docs = sorted(path for path in ROOT.glob("docs/**/*.md") if path.name != "log.md")
    return [
        ROOT / "README.md",
        *(path for path in of_docs if path.parent.name != "changes" or path.name == "README.md"),
    ]


def commands(page: Path) -> Iterator[str]:
    """Each command line of the page's code blocks, without its comment, in the page's order."""
    for line in page.read_text().splitlines():
        if line.startswith("    ") and line.split()[:1] and line.split()[0] in PROGRAMS:
            yield line.split("   #")[0].split("  #")[0].strip()


def inline_commands(page: Path) -> Iterator[str]:
    """Each mention of a command in the page's text, such as `predict memory`."""
    for code in INLINE_CODE.findall(page.read_text()):
        if len(code.split()) > 1 and code.split()[0] in PROGRAMS and "→" not in code:
            yield code


def links(page: Path) -> Iterator[str]:
    """Each relative link and picture of the page."""
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if not target.startswith(("http://", "https://")):
            yield target


def _alike(command: str) -> tuple[str, ...]:
    """The command's words, a config by its folder."""
    return tuple(str(Path(word).parent) if word.startswith("configs/") else word for word in shlex.split(command))


_KEPT_ALIKE = {_alike(command) for command in KEPT if command.removeprefix("predict ") not in OPTION_FAULTS}


def is_kept(command: str) -> bool:
    """Whether the whole answer of this command, or of the same on another config of its folder, is compared with each run of the tests."""
    return command in KEPT or (_alike(command) in _KEPT_ALIKE and not any(option in command for option in WRITES))


def quicker(command: str) -> Sequence[str]:
    """Options to add to a command line."""
    return next((more for start, more in QUICKER.items() if command.startswith(start)), ())
