"""Signals at random moments of commands, and poor surroundings: `python -m tests.trust.interruptions`.

After a signal the same command runs to its end: what was finished must still be there, and no file may be half written.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from predict.measured_runs.records import records
from regressors.bank.bank import Bank
from sampling.call import Request
from sampling.choosing.calls_file import calls_file_content
from sampling.files.places import SHIPPED_DATA
from sampling.hardware.cluster import hardware_facts
from sampling.operators.memory_bound import Gelu
from sampling.store.tables import iterate_samples, read_samples
from tests.trust.table import command, counts_so_far, show, write_counts

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "configs" / "runs" / "demo.yml"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
LONGEST_S = 120.0
GONE_S = 30.0
"""Time in which the processes that a command started must end after it."""
OURS = ("predict/", "sampling/", "regressors/")
EXIT_CODES = (0, 2, 3, 4, 130, 141, -signal.SIGINT, -signal.SIGTERM, -signal.SIGKILL, -signal.SIGXFSZ)
PARQUET = ("gelu",)
"""Tables of the small profile that is fitted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """A command that has ended."""

    code: int
    out: str
    err: str
    left: int = 0
    """Its processes that were still there."""

    @property
    def faults(self) -> Iterator[str]:
        """What no ending may show."""
        err = self.err.replace(f"{ROOT}/", "").strip()
        if "Traceback" in err and any(f'File "{each}' in err for each in OURS):
            yield f"a traceback: {err.splitlines()[-1][:120]}"
        if self.code not in EXIT_CODES:
            yield f"exit code {self.code}: {err[-200:]}"
        if self.left:
            yield f"{self.left} processes were left"


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """A command in a folder of its own, what is laid there first, and what is wrong there afterwards."""

    name: str
    arguments: Callable[[Path], Sequence[str]]
    prepare: Callable[[Path], object] = lambda folder: None
    finished: Callable[[Path], int] = lambda folder: 0
    """The number of finished things in the folder; an error where one cannot be read."""
    works: bool = True
    """Whether the command leaves something behind, from which the next one goes on: it is run once more to see that it does."""


def python(*arguments: object) -> Sequence[str]:
    return [sys.executable, "-m", *map(str, arguments)]


def _small_samples(folder: Path) -> None:
    """A profile of three operators, whose models take seconds."""
    source, place = SHIPPED_DATA / "samples" / "epyc-2-cores", folder / "data" / "samples" / "small"
    place.mkdir(parents=True)
    for name in ("manifest.json", *(f"{each}.parquet" for each in PARQUET)):
        shutil.copy(source / name, place)


def _models(folder: Path) -> int:
    place = folder / "data" / "regressors" / "small"
    return len(Bank.load(place).keys) if (place / "bank.npz").exists() else 0


def _data(folder: Path) -> None:
    (folder / "data").mkdir()


def _few_calls(folder: Path) -> None:
    """Four calls of one operator, as `predict calls` writes them."""
    _data(folder)
    calls = [
        Request(call=Gelu(dtype="fp32", tokens=64 * place, width=512), phases=("forward",)) for place in range(1, 5)
    ]
    content = calls_file_content({1: calls}, hardware_facts("cpu").name)
    (folder / "calls.json").write_text(json.dumps(content))


def _rows(folder: Path) -> int:
    place = folder / "data" / "samples" / "mine"
    if not (place / "manifest.json").exists():
        return 0
    return sum(1 for _ in iterate_samples(read_samples(place)))


def _records(folder: Path) -> int:
    before = os.environ.get("STEPTIME_DATA")
    os.environ["STEPTIME_DATA"] = str(folder / "data")
    try:
        return len(records("pod", print)) if [*(folder / "data" / "runs").glob("pod/*.json")] else 0
    finally:
        os.environ.pop("STEPTIME_DATA") if before is None else os.environ.update(STEPTIME_DATA=before)


def _few_published_runs(folder: Path) -> None:
    """The first rows of those that ship, so that most of the time is not that of one part of the command."""
    lines = (SHIPPED_DATA / "published" / "runs.csv").read_text().splitlines(keepends=True)
    (folder / "runs.csv").write_text("".join(lines[:4]))


def _estimates(folder: Path) -> int:
    place = folder / "kept.json"
    return len(json.loads(place.read_text())["estimates"]) if place.exists() else 0


SPACE = ("--set", "plan=auto", "--set", "batch.micro=auto", "--set", "cluster.hardware=h100-sxm", "--set", "cluster.nodes=2", "--set", "cluster.gpus_per_node=8", "--set", "cluster.profile=none", "--set", "batch.global=64")  # fmt: skip
TRIALS = (
    Trial(
        name="sample",
        arguments=lambda folder: python(
            "sampling", "--profile", "mine", "--data", folder / "data", "--calls", folder / "calls.json", "--visits", 1
        ),
        prepare=_few_calls,
        finished=_rows,
    ),
    Trial(
        name="train-regressors",
        arguments=lambda folder: python(
            "regressors", "--profile", "small", "--data", folder / "data", "--jobs", 1, "--model", "roofline"
        ),
        prepare=_small_samples,
        finished=_models,
    ),
    Trial(
        name="search --save",
        arguments=lambda folder: python(
            "predict", "search", DEMO, *SPACE, "--save", folder / "kept.json", "--jobs", 2, "--json"
        ),
        finished=_estimates,
    ),
    Trial(
        name="record",
        arguments=lambda folder: python(
            "predict", "record", DEMO, "--log", "1.3s", "--cluster", "pod", "--data", folder / "data"
        ),
        prepare=_data,
        finished=_records,
    ),
    Trial(
        name="validate",
        arguments=lambda folder: python("predict", "validate", "published", "--truth", folder / "runs.csv"),
        prepare=_few_published_runs,
        works=False,
    ),
    Trial(
        name="gpu-session --dry-run",
        arguments=lambda folder: python(
            "sampling.gpu_session", "--dry-run", "--minutes", 1, "--models", 1, "--out", folder / "session"
        ),
        works=False,
    ),
)
SHARES = {
    "sample": 1,
    "train-regressors": 1,
    "search --save": 6,
    "record": 6,
    "validate": 4,
    "gpu-session --dry-run": 2,
}
"""Shares of the cases; a case takes 5 s of a processor, one of the first two 8, and longer on a machine that is not quiet."""


def run(
    trial: Trial,
    folder: Path,
    *,
    after_s: float | None = None,
    by: signal.Signals = signal.SIGKILL,
    environment: Mapping[str, str] | None = None,
    file_kb: int = 0,
) -> Ended:
    """Run the command in the folder, and send it a signal after a time; with `file_kb` no file may grow larger."""
    # a path whose bytes are not UTF-8 is printed as it is
    opened = partial(Path.open, mode="w+", errors="surrogateescape")
    with opened(folder / "out") as out, opened(folder / "err") as err:
        own = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **(environment or {})}
        limited = ["bash", "-c", f'ulimit -f {file_kb}; exec "$@"', "bash"] if file_kb else []
        process = subprocess.Popen(
            [*limited, *trial.arguments(folder)],
            cwd=folder,
            env=own,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        try:
            process.wait(timeout=LONGEST_S if after_s is None else after_s)
        except subprocess.TimeoutExpired:
            _send(process, by if after_s is not None else signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=LONGEST_S)
        left = _left(folder)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (out, err):
            stream.seek(0)
        return Ended(code=process.returncode, out=out.read(), err=err.read(), left=left)


def _send(process: subprocess.Popen[bytes], by: signal.Signals) -> None:
    """Send a command a signal; Ctrl-C reaches all its processes, as a terminal has it."""
    if by is signal.SIGINT:
        os.killpg(process.pid, by)
    else:
        process.send_signal(by)


def _left(folder: Path) -> int:
    """Processes of a command in a folder that do not end in time."""
    until = time.monotonic() + GONE_S
    while (count := sum(1 for _ in _working_in(folder))) and time.monotonic() < until:
        time.sleep(0.05)
    return count


def _working_in(folder: Path) -> Iterator[int]:
    """Processes whose working directory is the folder: ranks have sessions of their own, and no ended process has a directory."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "cwd").readlink() == folder:
                yield int(process.name)


@contextmanager
def prepared(trial: Trial, name: str = "place") -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="trust-") as place:
        folder = Path(place) / name
        folder.mkdir()
        trial.prepare(folder)
        yield folder


@dataclass(kw_only=True, slots=True)
class Tried:
    """Runs of a command, how they ended, and what was wrong."""

    name: str
    cases: int = 0
    codes: Counter[int] = field(default_factory=Counter)
    kept: int = 0
    """Cases in which something was finished before the signal, and still there."""
    wrong: list[str] = field(default_factory=list)

    @property
    def counts(self) -> dict[str, Any]:
        """The counts as JSON."""
        codes = {str(code): count for code, count in self.codes.items()}
        return {"cases": self.cases, "codes": codes, "kept": self.kept, "wrong": self.wrong}

    @classmethod
    def from_counts(cls, name: str, counts: Mapping[str, Any]) -> Tried:
        codes = Counter({int(code): count for code, count in counts["codes"].items()})
        return cls(name=name, cases=counts["cases"], codes=codes, kept=counts["kept"], wrong=list(counts["wrong"]))

    def __add__(self, other: Tried) -> Tried:
        return Tried(
            name=self.name,
            cases=self.cases + other.cases,
            codes=self.codes + other.codes,
            kept=self.kept + other.kept,
            wrong=self.wrong + other.wrong,
        )

    @property
    def cells(self) -> list[object]:
        codes = ", ".join(f"{code} × {count}" for code, count in sorted(self.codes.items()))
        return [self.name, self.cases, codes, self.kept, "; ".join(self.wrong[:2]) or "yes"]


def interrupted(trial: Trial, seeds: Sequence[int], *, until: float) -> Tried:
    """The command with a signal at random moments of it, and then once more, whole."""
    tried = Tried(name=trial.name)
    with prepared(trial) as folder:
        begun = time.monotonic()
        whole = run(trial, folder)
        whole_s = time.monotonic() - begun
        tried.wrong += [f"undisturbed: {fault}" for fault in whole.faults]
        most = trial.finished(folder)
    for seed in seeds:
        if time.monotonic() > until:
            break
        draw = random.Random(f"{trial.name} {seed}")
        by = draw.choice(SIGNALS)
        with prepared(trial) as folder:
            ended = run(trial, folder, after_s=draw.uniform(0.02, whole_s), by=by)
            tried.cases += 1
            tried.codes[ended.code] += 1
            tried.kept += bool(_count(trial, folder))
            said = [*ended.faults, *_after(trial, folder, most)]
            tried.wrong += [f"seed {seed}, {by.name}: {fault}" for fault in said]
            print(f"{trial.name} seed {seed}: {by.name}, exit code {ended.code}", *said, file=sys.stderr, flush=True)
    return tried


def _count(trial: Trial, folder: Path) -> int:
    with suppress(Exception):
        return trial.finished(folder)
    return 0


def _after(trial: Trial, folder: Path, most: int) -> Iterator[str]:
    """What is wrong in the folder after a signal, and after the command ran once more."""
    try:
        kept = trial.finished(folder)
    except Exception as error:
        yield f"what is left cannot be read: {error}"
        return
    if not trial.works:
        return
    again = run(trial, folder)
    yield from (f"once more: {fault}" for fault in again.faults)
    if again.code:
        yield f"once more: exit code {again.code}: {again.err.strip()[-200:]}"
    try:
        now = trial.finished(folder)
    except Exception as error:
        yield f"after it ran once more, what is left cannot be read: {error}"
        return
    if now < max(kept, most):
        yield f"{kept} were finished, {now} are there, of {most}"


# Poor surroundings.


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """Something that a machine may lack."""

    name: str
    environment: Mapping[str, str] = field(default_factory=dict)
    file_kb: int = 0
    """Size above which no file may grow."""
    folder: str = "place"
    tmpfs: str = ""
    """Options of a file system of its own, which is made where that is permitted."""
    succeeds: bool = True
    """Whether the command must end well all the same."""


CLOCK = """\
import random, time
_real, _draw = time.time, random.Random(0)
time.time = lambda: _real() + _draw.choice((-86400.0, -1.0, 0.0, 3600.0, 86400.0))
"""
SURROUNDINGS = (
    Surroundings(name="a full disk (files of 4 kB at most)", file_kb=4, succeeds=False),
    Surroundings(name="a full disk (a file system of 64 kB)", tmpfs="size=64k", succeeds=False),
    Surroundings(name="a read-only folder", tmpfs="ro", succeeds=False),
    Surroundings(name="a clock that jumps by a day", environment={"PYTHONPATH": "clock"}),
    Surroundings(name="no HOME", environment={"HOME": ""}),
    Surroundings(name="the C locale", environment={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}),
    Surroundings(name="a path with spaces and quotes", folder='it\'s "a" place; $(x) `y`'),
    Surroundings(name="a path with bytes that are not UTF-8", folder=os.fsdecode(b"a\xff\xfeb")),
)


def surrounded(trial: Trial, given: Surroundings) -> Tried:
    """The command once in poor surroundings: it ends well, or says in words why it cannot, and leaves nothing half written."""
    tried = Tried(name=f"{trial.name}: {given.name}")
    with prepared(trial, given.folder) as folder:
        environment = dict(given.environment)
        if environment.get("PYTHONPATH") == "clock":
            (folder / "clock").mkdir()
            (folder / "clock" / "sitecustomize.py").write_text(CLOCK)
            environment["PYTHONPATH"] = os.pathsep.join([str(folder / "clock"), str(ROOT)])
        with _file_system(folder, given.tmpfs) as made:
            if not made:
                return tried
            ended = run(trial, folder, environment=environment, file_kb=given.file_kb)
            tried.cases += 1
            tried.codes[ended.code] += 1
            tried.wrong += ended.faults
            if given.succeeds and ended.code:
                tried.wrong.append(f"exit code {ended.code}: {ended.err.strip()[-200:]}")
            try:
                tried.kept += bool(trial.finished(folder))
            except Exception as error:
                tried.wrong.append(f"what is left cannot be read: {error}")
    return tried


@contextmanager
def _file_system(folder: Path, options: str) -> Iterator[bool]:
    """A file system at the data of the folder; not made where this user may not."""
    if not options:
        yield True
        return
    place = folder / "data"
    kept = folder / "before"
    place.mkdir(exist_ok=True)
    shutil.copytree(place, kept)
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m" if options == "ro" else options, "tmpfs", str(place)],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        yield False
        return
    try:
        shutil.copytree(kept, place, dirs_exist_ok=True)
        if options == "ro":
            subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True, capture_output=True)
        yield True
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True, capture_output=True)


def parser() -> argparse.ArgumentParser:
    return command(__doc__, cases=200, part="trial", parts=SHARES)


def main() -> None:
    options = parser().parse_args()
    until = time.monotonic() + 60 * options.minutes
    share = options.cases / sum(SHARES.values())
    trials = [trial for trial in reversed(TRIALS) if not options.trial or trial.name in options.trial]
    found = {name: Tried.from_counts(name, counts) for name, counts in counts_so_far(options.resume).items()}

    def keep(tried: Tried) -> None:
        found[tried.name] = found[tried.name] + tried if tried.name in found else tried
        write_counts(options.resume, {name: each.counts for name, each in found.items()})

    for trial in trials:
        begun = options.seed + (found[trial.name].cases if trial.name in found else 0)
        if seeds := range(begun, options.seed + round(share * SHARES[trial.name])):
            keep(interrupted(trial, seeds, until=until))
    for given in SURROUNDINGS:
        for trial in trials:
            if f"{trial.name}: {given.name}" not in found and time.monotonic() < until:
                keep(surrounded(trial, given))
    tried = [found[trial.name] for trial in TRIALS if trial.name in found]
    poor = [each for each in found.values() if each not in tried]
    rows = [each.cells for each in (*tried, *_by_surroundings(poor)) if each.cases]
    headings = ("command, or what it lacks", "cases", "exit codes", "with something finished", "held")
    show("interruptions", headings, rows, f"Seeds from {options.seed}.", keep=options.keep)
    for each in found.values():
        print(*(f"{each.name}: {line}" for line in each.wrong), sep="\n", end="\n" if each.wrong else "")
    sys.exit(any(each.wrong for each in found.values()))


def _by_surroundings(poor: Sequence[Tried]) -> Iterator[Tried]:
    """The trials of one lack together."""
    names = dict.fromkeys(each.name.partition(": ")[2] for each in poor)
    for name in names:
        own = [each for each in poor if each.name.endswith(f": {name}")]
        yield Tried(
            name=name,
            cases=sum(each.cases for each in own),
            codes=sum((each.codes for each in own), Counter()),
            kept=sum(each.kept for each in own),
            wrong=[f"{each.name.partition(':')[0]}: {line}" for each in own for line in each.wrong],
        )


if __name__ == "__main__":
    main()
