"""Inputs that nobody should give, by the thousand: `python -m tests.trust.fuzz`; each kind in a process of its own."""

from __future__ import annotations

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
from tests.fuzz.configs import drawn
from tests.fuzz.files import BANK, Kind, damaged, kinds, use_bank
from tests.fuzz.judgement import Counts
from tests.fuzz.kinds import KINDS
from tests.fuzz.test_configs import Dumper, nonsense
from tests.trust.table import command, show

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
        "row": [name, counts.cases, counts.answered, counts.refused, counts.tracebacks, counts.nonsense, counts.hangs, f"{longest_s:.1f}", f"{_peak_bytes() / 1e9:.1f}"],
        "faults": counts.faults,
    }  # fmt: skip


def _peak_bytes() -> float:
    return 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def parser() -> argparse.ArgumentParser:
    made = command(__doc__, cases=10_000, part="kind", parts=SHARES)
    made.add_argument("--here", action="store_true", help="one kind in this process, as JSON")
    return made


def main() -> None:
    options = parser().parse_args()
    wanted = options.kind or list(SHARES)
    if options.here:
        seeds = range(options.seed, options.seed + round(options.cases * SHARES[wanted[0]]))
        json.dump(judged(wanted[0], seeds, time.monotonic() + 60 * options.minutes), sys.stdout)
        return
    begun = time.monotonic()
    found = []
    for name in wanted:
        given = [
            "--cases",
            options.cases,
            "--seed",
            options.seed,
            "--minutes",
            options.minutes,
            "--kind",
            name,
            "--here",
        ]
        asked = [sys.executable, "-m", "tests.trust.fuzz", *map(str, given)]
        done = subprocess.run(asked, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
        found.append(json.loads(done.stdout[done.stdout.rindex('{"row"') :]))
    headings = (
        "kind",
        "cases",
        "answered",
        "refused",
        "tracebacks",
        "beyond physics",
        "hangs",
        "longest, s",
        "most memory, GB",
    )
    note = f"Seeds from {options.seed}, {(time.monotonic() - begun) / 60:.0f} minutes."
    show("fuzz", headings, [each["row"] for each in found], note, keep=options.keep)
    faults = [fault for each in found for fault in each["faults"]]
    print(*faults, sep="\n")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
