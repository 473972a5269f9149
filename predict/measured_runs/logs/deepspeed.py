"""Logs of DeepSpeed: its throughput timer, and the line of its pipeline engine.

Source: `ThroughputTimer.stop` of deepspeed/utils/timer.py (`epoch=0/micro_step=40/global_step=10, RunningAvgSamplesPerSec=…,
CurrSamplesPerSec=…, MemAllocated=4.32GB, MaxMemAllocated=38.49GB`, GB of 1024³ bytes), whose rate is the whole batch over one step;
`PipelineEngine.train_batch` (`steps: 200 loss: … iter time (s): 0.936 samples/sec: 136.706`); `step=10, skipped=4, lr=…` counts skips.
"""

import re
from collections.abc import Iterable, Iterator

from predict.measured_runs.logs import figure, times
from predict.measured_runs.steady_state import LoggedStep
from sampling.units import GIB

FRAMEWORK = "DeepSpeed"
TIMER = re.compile(r"(?:global_step=|\b\d+/)(\d+),\s*RunningAvgSamplesPerSec=")
RATE = "RunningAvgSamplesPerSec="
PIPELINE = re.compile(r"\bsteps:\s*(\d+)\b.*\biter time \(s\):")
SKIPS = re.compile(r"\bstep=\d+, skipped=(\d+)")


def read(lines: Iterable[str]) -> Iterator[LoggedStep]:
    skips = seen = 0
    for line in lines:
        if found := SKIPS.search(line):
            skips = int(found[1])
        if RATE in line and (found := TIMER.search(line)):  # most lines are of neither kind, and the pattern is slow
            yield LoggedStep(step=int(found[1]), samples_per_s=figure(line, "CurrSamplesPerSec"), skipped=skips > seen)
            seen = skips
        elif found := PIPELINE.search(line):
            yield LoggedStep(
                step=int(found[1]),
                time_us=times(figure(line, r"iter time \(s\)"), 1e6),
                samples_per_s=figure(line, "samples/sec"),
                skipped=skips > seen,
            )
            seen = skips


def peak_bytes(line: str) -> float | None:
    return times(figure(line, r"\bMaxMemAllocated"), GIB) if RATE in line and TIMER.search(line) else None
