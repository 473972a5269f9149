"""Seconds of `python -m regressors` for 100 models: `python -m tests.bench.fit`, with the searches of settings and with them kept.

The profile is made up: matrix products in two phases on 1 to 50 threads, as many rows a model as the shipped profile has.
"""

import os
import resource
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from sampling.operators.gemm import Gemm
from sampling.store.journal import append_to_journal, fold_journal
from sampling.store.profiles import Manifest, samples_directory, write_manifest
from tests.bench.stopwatch import seconds
from tests.made_rows import row

PROFILE = "synthetic"
THREADS = 50
PHASES = ("forward", "backward")
ROWS = (7, 18, 19, 26, 30, 42, 51, 63, 66, 68)
"""Rows of a model in turn: the deciles of the shipped profile, whose mean is 38."""
LIMIT_S = 120
"""For a first fit, on two cores that do nothing else."""


def write_profile(data: Path) -> int:
    """Write the made-up rows below `data`; their number."""
    directory = samples_directory(PROFILE, data)
    write_manifest(directory, Manifest(profile=PROFILE, hardware="cpu", device={"cpu": PROFILE}))
    random = np.random.default_rng(0)
    written = 0
    for model in range(THREADS * len(PHASES)):
        for _ in range(ROWS[model % len(ROWS)]):
            m, n, k = np.exp2(random.uniform(5, 11, 3)).astype(int).tolist()
            time_us = (5 + m * n * k / 2e4 + (m * n + n * k + m * k) / 2e3) * random.lognormal(0, 0.08)
            known = {"threads": model // len(PHASES) + 1, "busy_ranks": 1, "repeats": 10, "spread": 0.02}
            append_to_journal(directory, row(Gemm(dtype="fp32", m=m, n=n, k=k), PHASES[model % 2], time_us, **known))
            written += 1
    fold_journal(directory)
    return written


def _processor_s() -> float:
    """Seconds of processors that the commands run so far have taken, which other load lengthens less."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    with TemporaryDirectory() as place:
        rows = write_profile(Path(place))
        command = [sys.executable, "-m", "regressors", "--profile", PROFILE, "--data", place, "--brief"]
        print(f"{THREADS * len(PHASES)} models of {rows:,} rows on {os.cpu_count()} cores (limit {LIMIT_S} s)")
        for what in ("with searches of settings", "with their outcomes kept"):
            busy_s = _processor_s()
            took_s = seconds(lambda: subprocess.run(command, check=True))
            print(f"{what}: {took_s:.0f} s, {_processor_s() - busy_s:.0f} s of processors", flush=True)


if __name__ == "__main__":
    main()
