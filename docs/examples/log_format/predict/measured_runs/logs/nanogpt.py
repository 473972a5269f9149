"""Logs of nanoGPT.

Source: train.py of github.com/karpathy/nanoGPT (`iter 250: loss 3.3145, time 412.35ms, mfu 38.12%`), which counts steps from 0 and whose
first line has the time of the compiler.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from predict.measured_runs.steady_state import LoggedStep

FRAMEWORK = "nanoGPT"
ITERATION = re.compile(r"^iter (\d+): loss .*, time ([\d.]+)ms")


def read(lines: Iterable[str]) -> Iterator[LoggedStep]:
    for line in lines:
        if found := ITERATION.search(line):
            yield LoggedStep(step=int(found[1]) + 1, time_us=float(found[2]) * 1e3 or None)
