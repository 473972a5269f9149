"""Logs of prime-rl: its trainer of RL and SFT, and its orchestrator.

Source: train.py of prime_rl/trainer (`Step 12 | Time: 8.31s | Loss: 0.0012 | Entropy: … | Throughput: 61234 tokens/s | MFU: 31.2% | Peak
Mem.: 71.3 GiB`, tokens of the whole run) and of its orchestrator (`Step 12 | Time: 95.40s | Reward: 0.4812 | …`)."""

import re
from collections.abc import Iterable, Iterator

from predict.measured_runs.logs import NUMBER, times
from predict.measured_runs.steady_state import LoggedStep
from sampling.units import GIB

FRAMEWORK = "prime-rl"
STEP = re.compile(r"\bStep (\d+) \| Time: ([\d.]+)s \| (?:Loss|Reward):")
PEAK = re.compile(rf"Peak Mem\.: {NUMBER}(?:/[\d.]+)? GiB")


def read(lines: Iterable[str]) -> Iterator[LoggedStep]:
    for line in lines:
        if found := STEP.search(line):
            yield LoggedStep(step=int(found[1]) + 1, time_us=float(found[2]) * 1e6 or None)


def peak_bytes(line: str) -> float | None:
    found = PEAK.search(line) if STEP.search(line) else None
    return times(float(found[1]), GIB) if found else None
