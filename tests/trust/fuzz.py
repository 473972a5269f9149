"""Inputs that nobody should give, by the thousand: `python -m tests.trust.fuzz`; each kind in a process of its own."""

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from predict import estimate, load
from tests.fuzz import judgement
from tests.fuzz.configs import Dumper, drawn
from tests.fuzz.files import BANK, Kind, damaged, kinds, use_bank
from tests.fuzz.judgement import Counts
from tests.fuzz.kinds import KINDS
from tests.fuzz.test_configs import nonsense
from tests.trust.table import command, counts_so_far, show, write_counts

MOST_S = 20.0
MOST_BYTES = 2e9
CONFIGS, FILES = "training configs", "damaged files"
SHARES = {CONFIGS: 1.0, "servers and loads": 0.2, "RL steps": 0.1, "module files": 0.05, FILES: 0.1}
"""Kind → its cases for each training config."""
Case = tuple[str, Callable[[], Iterator[str]], str]
"""What is odd in it, what answers it, and the name that a refusal must say."""


def _of_configs(seeds: range, folder: Path) -> Iterator[Case]:
    path = folder / "run.yml"
    for case in seeds:
        config, odd = drawn(case)
        path.write_text(yaml.dump(config, Dumper=Dumper))
        yield str(odd), lambda: nonsense(estimate(load(path))), ""


def _of_files(seeds: range, folder: Path) -> Iterator[Case]:
    (folder / "made").mkdir()
    every = [*kinds(folder / "made"), Kind(name="bank.npz", sound=(BANK / "bank.npz").read_bytes(), read=use_bank)]
    for number, kind in enumerate(every):
        path = folder / str(number) / kind.name
        path.parent.mkdir(parents=True, exist_ok=True)
        says = path.name.split("_")[0] if kind.says_its_name else ""
        for case in seeds[:: len(every)]:
            path.write_bytes(damaged(kind.sound, random.Random(f"{kind.name} {case}")))
            yield f"{kind.name} seed {case}", lambda kind=kind, path=path: _read(kind, path), says  # type: ignore[misc]


def _read(kind: Kind, path: Path) -> Iterator[str]:
    kind.read(path)
    yield from ()


def _drawn(name: str, seeds: range, folder: Path) -> Iterator[Case]:
    (kind,) = (each for each in KINDS if each.name == name)
    for case in seeds:
        given, odd = kind.draw(case, folder)
        yield odd, lambda given=given: kind.answer(given), ""  # type: ignore[misc]


def cases_of(name: str, seeds: range, folder: Path) -> Iterator[Case]:
    if name == CONFIGS:
        return _of_configs(seeds, folder)
    return _of_files(seeds, folder) if name == FILES else _drawn(name, seeds, folder)


def judged(name: str, seeds: range, until: float) -> dict[str, Any]:
    """The counts of one kind, in this process."""
    judgement.MOST_S = MOST_S
    counts, longest_s, large = Counts(), 0.0, 0
    with tempfile.TemporaryDirectory() as folder:
        for case, (odd, work, says) in enumerate(cases_of(name, seeds, Path(folder))):
            if time.monotonic() > until:
                break
            begun = time.monotonic()
            counts.judge(f"{name} case {case}: {odd[:300]}", work, says=says)
            longest_s = max(longest_s, time.monotonic() - begun)
            if not large and _peak_bytes() > MOST_BYTES:
                large = 1
                counts.faults.append(f"{name} case {case}: {odd[:300]}: {_peak_bytes() / 1e9:.1f} GB")
    return {
        "cases": counts.cases,
        "answered": counts.answered,
        "refused": counts.refused,
        "tracebacks": counts.tracebacks,
        "beyond physics": counts.nonsense,
        "hangs": counts.hangs,
        "longest, s": round(longest_s, 1),
        "most memory, GB": round(_peak_bytes() / 1e9, 1),
        "faults": counts.faults,
    }


LARGEST = ("longest, s", "most memory, GB")
"""What is not added up over several runs."""


def _together(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    return {name: max(before[name], now[name]) if name in LARGEST else before[name] + now[name] for name in now}


def _peak_bytes() -> float:
    return 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def parser() -> argparse.ArgumentParser:
    made = command(__doc__, cases=10_000, part="kind", parts=SHARES)
    made.add_argument(
        "--here", type=int, nargs=2, metavar=("FROM", "TO"), help="these seeds of one kind in this process, as JSON"
    )
    return made


def main() -> None:
    options = parser().parse_args()
    wanted = options.kind or list(SHARES)
    until = time.monotonic() + 60 * options.minutes
    if options.here:
        json.dump(judged(wanted[0], range(*options.here), until), sys.stdout)
        return
    found = counts_so_far(options.resume)
    for name in wanted:
        tried = found.get(name, {}).get("cases", 0)
        seeds = options.seed + tried, options.seed + round(options.cases * SHARES[name])
        left_minutes = (until - time.monotonic()) / 60
        if seeds[0] >= seeds[1] or left_minutes <= 0:
            continue
        given = ["--kind", name, "--minutes", left_minutes, "--here", *seeds]
        asked = [sys.executable, "-m", "tests.trust.fuzz", *map(str, given)]
        done = subprocess.run(asked, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
        now = json.loads(done.stdout[done.stdout.rindex('{"cases"') :])
        found[name] = _together(found[name], now) if tried else now
        write_counts(options.resume, found)
    headings = [heading for heading in next(iter(found.values())) if heading != "faults"]
    rows = [[name, *(found[name][heading] for heading in headings)] for name in SHARES if name in found]
    note = f"Seeds from {options.seed}."
    show("fuzz", ("kind", *headings), rows, note, keep=options.keep)
    faults = [fault for each in found.values() for fault in each["faults"]]
    print(*faults, sep="\n")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
