"""Logs of Megatron-LM, and of Megatron-Bridge and Megatron-DeepSpeed, which write the same line.

Source: `training_log` of megatron/training/training.py, and of megatron/bridge/training/utils/train_utils.py, which writes its
TFLOP/s into a line `Step Time` before. Megatron-DeepSpeed of BigScience states seconds, and samples and TFLOPs behind them; GPT-NeoX has
`samples/sec` before and `approx flops per GPU` behind them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from predict.measured_runs.logs import figure, times, whole
from predict.measured_runs.steady_state import LoggedStep
from sampling.units import GB, MIB

FRAMEWORK = "Megatron"
STEP = re.compile(r"\biteration\s+(\d+)\s*/\s*\d+\s*\|")
TFLOPS = r"(?:throughput per GPU \(TFLOP/s/GPU\)|compute per GPU \(TFLOP/s/GPU\)|\bTFLOPs|approx flops per GPU)"
TOKENS = (
    r"(?:[Tt]okens per second per GPU \(Tok/s/GPU\)|tokens per GPU \(tokens/s/GPU\)|tokens per gpu per second \(tgs\))"
)
BRIDGE = re.compile(r"Step Time\s*:.*GPU utilization:\s*([\d.]+)\s*(?:MODEL_)?TFLOP/s/GPU")


def read(lines: Iterable[str]) -> Iterator[LoggedStep]:
    before: float | None = None
    for line in lines:
        if found := BRIDGE.search(line):
            before = float(found[1]) or None
        if found := STEP.search(line):
            yield LoggedStep(
                step=int(found[1]),
                time_us=times(figure(line, r"elapsed time per iteration \(ms\)"), 1e3)
                or times(figure(line, r"elapsed time per iteration \(s\)"), 1e6),
                samples_per_s=figure(line, r"(?:samples per second|samples/sec)"),
                tokens_per_s_per_gpu=figure(line, TOKENS),
                tflops_per_gpu=figure(line, TFLOPS) or before,
                batch=whole(line, "global batch size"),
                skipped=bool(whole(line, "number of skipped iterations") or whole(line, "number of nan iterations")),
            )
            before = None


def peak_bytes(line: str) -> float | None:
    """The line is `[Rank 0] (after 2 iterations) memory (MB) | … | max allocated: …`, in MiB; Megatron-Bridge states GB."""
    if "iterations) memory (" not in line:
        return None
    return times(figure(line, r"\bmax allocated"), MIB) or times(figure(line, "mem-max-allocated-gigabytes"), GB)
