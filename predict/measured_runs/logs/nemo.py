"""Logs of NeMo: its line per step, its progress bar, and Megatron-Bridge's line where nothing else of the step is kept.

Source: NeMo's ProgressPrinter (`Training epoch 0, iteration 1/249 | … | train_step_timing in s: 2.505`) and its bar
(`global_step=99.00, …, train_step_timing in s=3.130`); Megatron-Bridge's `Step Time : 5.39s GPU utilization: 2347.0MODEL_TFLOP/s/GPU`.
"""

import re
from collections.abc import Iterable, Iterator

from predict.measured_runs.logs import figure, times, whole
from predict.measured_runs.steady_state import LoggedStep

FRAMEWORK = "NeMo"
TIME = "train_step_timing in s"
BRIDGE = re.compile(r"Step Time\s*:\s*([\d.]+)\s*s\b.*GPU utilization:\s*([\d.]+)\s*(?:MODEL_)?TFLOP/s/GPU")


def read(lines: Iterable[str]) -> Iterator[LoggedStep]:
    last = 0
    for line in lines:
        step = None
        if TIME in line:
            step = _of_nemo(line, last)
        elif found := BRIDGE.search(line):
            step = LoggedStep(
                step=last + 1, time_us=float(found[1]) * 1e6 or None, tflops_per_gpu=float(found[2]) or None
            )
        if step and step.step:
            last = step.step
            yield step


def _of_nemo(line: str, last: int) -> LoggedStep:
    place = figure(line, r"\bglobal_step")  # of the first step 0, so that it is not a figure
    return LoggedStep(
        step=round(place) + 1 if place else 1 if re.search(r"\bglobal_step\s*[:=]\s*0", line) else last + 1,
        time_us=times(figure(line, TIME), 1e6),
        tflops_per_gpu=figure(line, "TFLOPS_per_GPU"),
        batch=whole(line, r"\bglobal_batch_size"),
    )


def peak_bytes(line: str) -> float | None:
    return figure(line, r"\bpeak_memory_usage") if TIME in line else None
