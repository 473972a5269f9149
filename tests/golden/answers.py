"""What every command answers for every shipped config: `python -m tests.golden.answers` compares with the kept answers, `--write` keeps.

An answer is the exit code, stdout, stderr and the files written, with dates, commit, seconds and paths of this machine replaced and
numbers rounded to what arithmetic of any machine agrees on. The messages with which the fuzz corpus is refused are kept beside them.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import io
import lzma
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from tests.golden import faults
from tests.golden.commands import (
    FIT_COMMANDS,
    LONG_COMMANDS,
    OPTION_FAULTS,
    PICTURED,
    PICTURES,
    RL_COMMANDS,
    RUN_COMMANDS,
    SAMPLE_COMMANDS,
    SCHEDULE_COMMANDS,
    SEARCH_COMMANDS,
    SERVING_COMMANDS,
    SINGLE_COMMANDS,
    SUBCOMMANDS,
)

if TYPE_CHECKING:
    from predict.step.prediction import Prediction

ROOT = Path(__file__).resolve().parents[2]
KEPT = Path(__file__).with_name("answers")
COLUMNS, CORES, DIGITS = 120, 2, 9
MOST_DIFFERENCES = 400
"""Lines of differences printed of one group."""
CPUINFO = """\
vendor_id\t: AuthenticAMD
cpu family\t: 26
model\t\t: 2
model name\t: AMD EPYC
"""
"""The CPU on which the shipped samples were taken stands in for this machine's."""
NARROW = 80
"""Columns at which `--narrow` looks for figures that a table cut short."""
CUT = re.compile(r"\d[\d.,]*…|(?<= )…(?= +\d)")
FUZZED = 1000
PIECES = 8
"""Parts into which the fuzz corpus is cut, for the processes to share."""
LONG = "long"
NOT_IN_TESTS = ("runs-", "rl-", "serving-", "searches-", "fuzz-", LONG)
"""Starts of the names of groups that hold the commands of one shipped config, those that `tests/fuzz` compares, or what takes long."""
OF_EACH_KIND = (
    "runs-demo",
    "runs-llama3-70b-64xh100",
    "runs-deepseek-v3-1024xh100",
    "runs-data-parallel",
    "runs-zbv",
    "runs-library-llama",
    "runs-mixture-compiled",
    "runs-qwen2.5-vl-7b-8xh100",
    "rl-grpo",
    "serving-llama3-8b-h100",
    "searches-llama3-70b-64xh100",
)
"""Groups of shipped configs that are compared with each run of the tests: one or more of each kind of config.
The others have the same commands. `make golden` compares them too, and what takes long."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What one command answered, normalised; `files` are those it wrote into its own folder, by name."""

    exit_code: int
    stdout: str
    stderr: str
    files: Mapping[str, str]

    def text(self) -> str:
        parts = {"stdout": self.stdout, "stderr": self.stderr, **self.files}
        return f"exit code {self.exit_code}\n" + "".join(f"--- {name}\n{text}" for name, text in parts.items() if text)


def groups() -> dict[str, tuple[str, ...]]:
    """Name of a kept file → the command lines in it; {out} stands for a folder of their own."""
    by_kind = {
        "runs": (RUN_COMMANDS, sorted(ROOT.glob("configs/runs/**/*.yml"))),
        "rl": (RL_COMMANDS, sorted(ROOT.glob("configs/rl/**/*.yml"))),
        "serving": (SERVING_COMMANDS, sorted(ROOT.glob("configs/serving/**/*.yml"))),
        "searches": (SEARCH_COMMANDS, sorted(ROOT.glob("configs/searches/*.yml"))),
    }
    lines = {
        f"{kind}-{path.stem}": tuple(each.replace("{config}", str(path.relative_to(ROOT))) for each in commands)
        for kind, (commands, paths) in by_kind.items()
        for path in paths
    }
    pictures = {
        f"pictures-{Path(config).stem}": (
            *(f"plot {picture} {config} -o {{out}}/picture.svg" for picture in PICTURES),
            f"report {config} -o {{out}}/page.html",
        )
        for config in PICTURED
    }
    helps = tuple(f"{name} --help" for name in SUBCOMMANDS)
    apart = {"fit": FIT_COMMANDS, "samples": SAMPLE_COMMANDS, "schedules": SCHEDULE_COMMANDS, "options": OPTION_FAULTS}
    return {**lines, **pictures, **apart, "single": SINGLE_COMMANDS, LONG: LONG_COMMANDS, "help": helps}


def answer(command_line: str) -> Answer:
    """Run one command in this process, as if on the machine of the shipped samples."""
    from predict.cli import main

    with tempfile.TemporaryDirectory() as place:
        arguments = command_line.replace("{out}", place).split()
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = main(arguments)
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 1
        written = {
            str(path.relative_to(place)): normal(path.read_text(errors="replace"), place)
            for path in sorted(Path(place).rglob("*"))
            if path.is_file()
        }
        return Answer(
            exit_code=code,
            stdout=normal(out.getvalue(), place),
            stderr=normal(err.getvalue(), place),
            files=written,
        )


@cache
def commit() -> str:
    """The commit checked out; a word that no answer has where git knows none."""
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "no commit"


def normal(text: str, place: str) -> str:
    """`text` without progress, and without what differs by machine, day and commit."""
    text = text.replace(place, "{out}").replace(os.environ["STEPTIME_DATA"], "{data}").replace(str(ROOT), "{root}")
    text = re.sub(r"(?m)^.*\bleft(, .*)?$\n?", "", text)
    text = re.sub(r"\b20\d\d-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)?", "{date}", text)
    text = re.sub(rf"\b{commit()[:12]}[0-9a-f]*\+?", "{commit}", text)
    text = re.sub(r"(?m)^(.*?(?:per second|in \d+(?:\.\d+)? m?s\b).*|\d+(?:\.\d+)? s)$", _without_seconds, text)
    text = re.sub(r'"(seconds|took_s|elapsed_s|server_ms)": [\d.e+-]+', r'"\1": "{seconds}"', text)
    return re.sub(r"-?\d+\.\d{6,}(?:e[+-]?\d+)?", lambda found: f"{float(found[0]):.{DIGITS}g}", text)


def _without_seconds(line: re.Match[str]) -> str:
    return re.sub(r"\b\d+(?:[.,]\d+)? ?(?:ms|s|min|h)\b|[\d,]+ (?:plans )?(?=per second)", "{seconds}", line[0])


def predicted(name: str, path: Path) -> Prediction:
    """The step of a case of the fuzz corpus."""
    from predict import estimate, load

    return estimate(load(path))


def fuzz_text(piece: int, answered: Callable[[str, Path], Prediction] = predicted) -> str:
    """The message, or the step time, of each case in a part of the fuzz corpus of run configs."""
    import yaml

    from predict import UserError
    from tests.fuzz.configs import Dumper, drawn

    text = ""
    for case in range(piece, FUZZED, PIECES):
        config, odd = drawn(case)
        with tempfile.TemporaryDirectory() as place:
            path = Path(place) / "run.yml"
            path.write_text(yaml.dump(config, Dumper=Dumper))
            try:
                said = f"{answered(f'case {case} {odd}', path).step_time.median_us:.6g} us"
            except UserError as error:
                said = f"{type(error).__name__}: {error}"
            text += f"$ fuzz {case:04}\n{normal(said, place)}\n\n"
    return text


def group_text(name: str) -> str:
    """All answers of a group, one after the other."""
    if name == "faults":
        return "".join(f"$ {row}\n{normal(said, KEPT.name)}\n\n" for row, said in faults.fault_answers().items())
    if name.startswith("fuzz-"):
        return fuzz_text(int(name.removeprefix("fuzz-")))
    return "".join(f"$ predict {each}\n{answer(each).text()}\n\n" for each in groups()[name])


def names() -> list[str]:
    """Names of all groups, those that take longest first."""
    fuzzed = (f"fuzz-{piece}" for piece in range(PIECES))
    return [LONG, "single", *fuzzed, *(each for each in groups() if each not in (LONG, "single")), "faults"]


def names_of_tests() -> list[str]:
    """Names of the groups that the tests compare."""
    return [name for name in names() if name in OF_EACH_KIND or not name.startswith(NOT_IN_TESTS)]


def kept_path(name: str) -> Path:
    return KEPT / f"{name}.txt.xz"


def kept_text(name: str) -> str:
    return lzma.decompress(kept_path(name).read_bytes()).decode() if kept_path(name).exists() else ""


def once(work: Callable[..., Any]) -> Callable[..., Any]:
    """`work`, which is not done again for what it was asked before: as text and as JSON a command states the same."""
    known: dict[str, tuple[Any, str]] = {}

    def answered(*given: Any, **options: Any) -> Any:
        asked, said = repr((given, options)), io.StringIO()
        if asked not in known:
            try:
                with contextlib.redirect_stderr(said):
                    found = work(*given, **options)
            except BaseException:
                print(said.getvalue(), end="", file=sys.stderr)
                raise
            known[asked] = found, said.getvalue()
        print(known[asked][1], end="", file=sys.stderr)
        return known[asked][0]

    return answered


@contextlib.contextmanager
def shipped_machine() -> Iterator[None]:
    """Commands find the CPU and cores of the shipped samples, no data but the shipped, and a terminal of 120 columns."""
    from predict.cli import sensitivity, validate
    from sampling.hardware import this_device as cpu_name

    with tempfile.TemporaryDirectory() as place, contextlib.chdir(ROOT):
        cpuinfo = Path(place) / "cpuinfo"
        cpuinfo.write_text(CPUINFO)
        environment = {"COLUMNS": str(COLUMNS), "STEPTIME_DATA": str(Path(place) / "data"), "HOME": place}
        with (
            patch.dict(os.environ, environment),
            patch.object(os, "cpu_count", lambda: CORES),
            patch.object(cpu_name, "CPUINFO", cpuinfo),
            patch.object(sensitivity, "sensitivity", once(sensitivity.sensitivity)),
            patch.object(validate, "validate", once(validate.validate)),
        ):
            yield


def cut_figures(name: str, columns: int = NARROW) -> list[str]:
    """The lines of a group's tables in a narrow terminal in which a figure was cut, or which are too long for it, each behind its
    command."""
    as_text = [line for line in groups()[name] if not {"--json", "--csv", "--output", "-o", "--help"} & {*line.split()}]
    return [
        f"{command_line} | {line}"
        for command_line in as_text
        for line in answer(f"{command_line} --width {columns}").stdout.splitlines()
        if CUT.search(line) or len(line) > columns
    ]


def _narrow(name: str) -> list[str]:
    with shipped_machine():
        return cut_figures(name)


def _work(name: str) -> tuple[str, str]:
    with shipped_machine():
        return name, group_text(name)


def differences(name: str, now: str) -> list[str]:
    """Lines of a unified diff between the kept answers and those of now."""
    kept = kept_text(name)
    if kept == now:
        return []
    pairs = difflib.unified_diff(kept.splitlines(), now.splitlines(), f"kept {name}", f"now {name}", lineterm="", n=2)
    return [line[:300] for line in pairs]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.golden.answers", description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="keep the answers of now")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one for each core)")
    parser.add_argument("--narrow", action="store_true", help=f"list figures that are cut at {NARROW} columns instead")
    parser.add_argument("groups", nargs="*", help="groups to run (default: all)")
    options = parser.parse_args(arguments)
    chosen, differing = options.groups or names(), []
    KEPT.mkdir(exist_ok=True)
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        if options.narrow:
            cut = [line for lines in pool.map(_narrow, options.groups or groups()) for line in lines]
            print(*cut, f"{len(cut)} lines with figures cut at {NARROW} columns", sep="\n")
            return bool(cut)
        for name, now in pool.map(_work, chosen):
            lines = differences(name, now)
            if not lines:
                continue
            differing.append(name)
            print(*lines[:MOST_DIFFERENCES], sep="\n")
            if options.write:
                kept_path(name).write_bytes(lzma.compress(now.encode(), preset=9))
    print(
        f"{len(chosen)} groups of answers, {len(differing)} differ{' and are kept anew' if options.write else ''}",
        *differing,
    )
    return 0 if options.write or not differing else 1


if __name__ == "__main__":
    sys.exit(main())
