"""Logs of torchtitan.

Source: `MetricsProcessor.log` of torchtitan/components/metrics.py (`step: 10  loss: …  memory: 47.24GiB(49.73%)  tps: 6,012  tflops:
350.15  mfu: 35.40%`; `wps` before 2025), tokens per second and GPU since the line before; `Training starts at step 1, with local batch
size 1, global batch size 8, sequence length 8192` of its trainer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from predict.measured_runs.logs import NUMBER, figure, times
from predict.measured_runs.steady_state import LoggedStep
from sampling.units import GIB

FRAMEWORK = "torchtitan"
STEP = re.compile(r"\bstep:\s*(\d+)\s+.*\b(?:tps|wps):")
STARTS = re.compile(r"Training starts at step \d+.*global batch size (\d+)(?:.*sequence length (\d+))?")
MEMORY = re.compile(rf"\bmemory:\s*{NUMBER}\s*GiB")


def read(lines: Iterable[str]) -> Iterator[LoggedStep]:
    batch = seq_len = None
    for line in lines:
        if found := STARTS.search(line):
            batch, seq_len = int(found[1]), int(found[2]) if found[2] else None
        if found := STEP.search(line):
            yield LoggedStep(
                step=int(found[1]),
                tokens_per_s_per_gpu=figure(line, r"\b(?:tps|wps)"),
                tflops_per_gpu=figure(line, r"\btflops"),
                batch=batch,
                seq_len=seq_len,
            )


def peak_bytes(line: str) -> float | None:
    found = MEMORY.search(line) if STEP.search(line) else None
    return times(float(found[1].replace(",", "")), GIB) if found else None
